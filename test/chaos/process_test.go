//go:build linux

package chaos

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is a server that dies with the test binary.
type process struct {
	cmd    *exec.Cmd
	output *lockedBuffer
}

func (p *process) start(name string, args ...string) error {
	p.output = new(lockedBuffer)
	p.cmd = exec.Command(name, args...)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return p.cmd.Start()
}

// kill is SIGKILL, and waits until it is gone.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

func (p *process) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// freePort finds a port that is not among those that the kernel, or redistest, gives out. A
// lock on a file keeps it for this test among all that run on the machine.
func freePort(t testing.TB) int {
	t.Helper()
	for range 200 {
		port := 30000 + rand.IntN(2700)
		claim, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("redistest-%d.lock", port)), os.O_CREATE|os.O_RDWR, 0o666)
		if err != nil {
			continue
		}
		if syscall.Flock(int(claim.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil || !inPlace(claim) {
			claim.Close()
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			claim.Close()
			continue
		}
		l.Close()
		t.Cleanup(func() {
			os.Remove(claim.Name()) // while it is still ours
			claim.Close()
		})
		return port
	}
	t.Fatal("no free port between 30000 and 32700")
	return 0
}

// inPlace tells whether a file that is locked is the one of its name: who had it before
// removed it, perhaps, after it was opened here.
func inPlace(f *os.File) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(f.Name())
	return err == nil && os.SameFile(mine, named)
}

// do sends a command over a connection of its own.
func (x *sentinel) do(args ...string) (any, error) {
	c, err := net.DialTimeout("tcp", x.addr(), time.Second)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(c, b.String()); err != nil {
		return nil, err
	}
	return reply(bufio.NewReader(c))
}

// reply reads one RESP2 reply.
func reply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return nil, errors.New("an empty line where a reply should begin")
	}
	rest := line[1:]
	switch line[0] {
	case '+':
		return rest, nil
	case '-':
		return nil, errors.New(rest)
	case ':':
		return strconv.ParseInt(rest, 10, 64)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return nil, err
		}
		data := make([]byte, n+2)
		if _, err := io.ReadFull(r, data); err != nil {
			return nil, err
		}
		return string(data[:n]), nil
	case '*':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return nil, err
		}
		all := make([]any, n)
		for i := range all {
			if all[i], err = reply(r); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	return nil, fmt.Errorf("a reply of an unknown type: %q", line)
}
