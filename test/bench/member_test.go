//go:build linux

package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// member is a process that does tasks, one after the other. It is told, and answers, in lines:
//
//	a task as JSON    "ready"
//	"begin"           nothing: the witness shows what goes on
//	"measure"         nothing
//	"end"             its report as JSON
type member struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan []byte // closed when it has ended
	stderr tail
	busy   bool        // it has a task
	guard  *time.Timer // asks for its stacks and ends it, if a task takes for ever
}

// startMember starts a process that ends with this one. Its tasks are bounded, each.
func startMember(cmd *exec.Cmd) (*member, error) {
	m := &member{cmd: cmd, lines: make(chan []byte, 16)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = &m.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if m.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(m.lines)
		in := bufio.NewReader(out)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return
			}
			m.lines <- line
		}
	}()
	return m, nil
}

// enlist starts a test binary as a worker: this one again, if binary is empty.
func enlist(binary string) (*member, error) {
	if binary == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		binary = self
	}
	cmd := exec.Command(binary)
	// The race detector makes a process sleep for a second at its end, by default.
	cmd.Env = append(os.Environ(), workerEnv+"=1", "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	return startMember(cmd)
}

// give starts a task, which takes bound at most.
func (m *member) give(k task, bound time.Duration) error {
	m.busy = true
	m.guard = time.AfterFunc(bound, func() {
		m.cmd.Process.Signal(syscall.SIGQUIT)
		time.AfterFunc(10*time.Second, func() { m.cmd.Process.Kill() })
	})
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return m.tell(string(text))
}

func (m *member) tell(line string) error {
	if _, err := io.WriteString(m.in, line+"\n"); err != nil {
		return m.failed(err)
	}
	return nil
}

// await is the next line.
func (m *member) await() ([]byte, error) {
	line, ok := <-m.lines
	if !ok {
		return nil, m.failed(io.ErrUnexpectedEOF)
	}
	return line, nil
}

func (m *member) ready() error {
	line, err := m.await()
	if err == nil && string(line) != "ready\n" {
		err = m.failed(fmt.Errorf("it said %q", line))
	}
	return err
}

func (m *member) report(r any) error {
	line, err := m.await()
	if err != nil {
		return err
	}
	m.guard.Stop()
	m.busy = false
	if err := json.Unmarshal(line, r); err != nil {
		return m.failed(fmt.Errorf("%w in %.200q", err, line))
	}
	return nil
}

func (m *member) failed(err error) error {
	m.dismiss()
	return fmt.Errorf("a worker failed: %w\n%s", err, m.stderr.String())
}

// dismiss ends it. It may be called again.
func (m *member) dismiss() {
	if m.guard != nil {
		m.guard.Stop()
	}
	m.cmd.Process.Kill()
	for range m.lines { // its pipe is read to the end before Wait closes it
	}
	m.cmd.Wait()
}

// tail keeps the last of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if n := len(t.buf) - 64<<10; n > 0 {
		t.buf = append(t.buf[:0], t.buf[n:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.Clone(t.buf))
}
