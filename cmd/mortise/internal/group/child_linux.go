package group

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The hidden commands of the program that imports this package: it passes them to Guard and Exec.
const (
	GuardCommand = "__guard"
	ExecCommand  = "__exec"
)

// State is what became of the command's first process.
type State int

// The states that a Child reports.
const (
	Stopped State = iota + 1 // by a signal, such as the terminal's Ctrl-Z
	Exited                   // it has ended, and is not reaped yet
)

// Child is a running command and its guardian.
type Child struct {
	pid    int
	guard  *exec.Cmd
	lines  io.WriteCloser
	gate   *os.File
	tty    *terminal
	asked  bool          // TSTP was passed on, and the group has not stopped since
	States chan State    // closed after Exited
	Killed chan struct{} // closed when the guardian has killed the group at the deadline
	Alone  chan struct{} // closed when the guardian has ended
}

// Start starts path with args in a process group of its own, whose deadline is until. The group is the terminal's
// foreground group if the program's own is.
func Start(path string, args, env []string, until Instant) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &Child{States: make(chan State, 8), Killed: make(chan struct{}), Alone: make(chan struct{})}
	said, err := c.startGuard(self)
	if err != nil {
		return nil, fmt.Errorf("the guardian: %w", err)
	}
	if err := c.startStub(self, path, args, env); err != nil {
		c.Release()
		return nil, err
	}
	fmt.Fprintf(c.lines, "until %d\n", until)
	fmt.Fprintf(c.lines, "group %d\n", c.pid)
	if ok, err := said.ReadString('\n'); ok != "ok\n" {
		unix.Kill(-c.pid, unix.SIGKILL)
		c.Release()
		return nil, fmt.Errorf("the guardian said %q: %w", ok, err)
	}
	go c.listen(said)
	go c.watch()
	if _, err := c.gate.Write([]byte{1}); err != nil {
		return c, err
	}
	return c, c.gate.Close()
}

// startGuard starts the guardian, and returns what it says.
func (c *Child) startGuard(self string) (*bufio.Reader, error) {
	c.guard = exec.Command(self, GuardCommand)
	c.guard.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	c.guard.Stderr = os.Stderr
	c.guard.Dir = "/"
	out, err := c.guard.StdoutPipe()
	if err == nil {
		c.lines, err = c.guard.StdinPipe()
	}
	if err == nil {
		err = c.guard.Start()
	}
	return bufio.NewReader(out), err
}

// startStub starts the starter.
func (c *Child) startStub(self, path string, args, env []string) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	c.gate = write
	c.tty = controlling()
	stub := exec.Command(self, append([]string{ExecCommand, path}, args...)...)
	stub.Stdin, stub.Stdout, stub.Stderr = os.Stdin, os.Stdout, os.Stderr
	stub.Env = env
	stub.ExtraFiles = []*os.File{read}
	stub.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if c.tty != nil && c.tty.mine() {
		stub.SysProcAttr.Foreground, stub.SysProcAttr.Ctty = true, c.tty.fd
	}
	if err := stub.Start(); err != nil {
		write.Close()
		return err
	}
	if c.tty != nil {
		signal.Ignore(unix.SIGTTOU) // after the start: what is ignored is inherited
	}
	c.pid = stub.Process.Pid
	return stub.Process.Release()
}

// listen reads what the guardian says.
func (c *Child) listen(said *bufio.Reader) {
	defer close(c.Alone)
	for {
		line, err := said.ReadString('\n')
		if line == "killed\n" {
			close(c.Killed)
		}
		if err != nil {
			return
		}
	}
}

// watch reports stops of the command's first process, and its end. It leaves it unreaped, so that its process group
// stays its own.
func (c *Child) watch() {
	defer close(c.States)
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, c.pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err == nil && info.Code == cldStopped:
			unix.Waitid(unix.P_PID, c.pid, &info, unix.WSTOPPED|unix.WNOHANG, nil)
			c.States <- Stopped
		default:
			c.States <- Exited
			return
		}
	}
}

const cldStopped = 5 // CLD_STOPPED of siginfo_t

// Until tells the guardian the new deadline.
func (c *Child) Until(i Instant) { fmt.Fprintf(c.lines, "until %d\n", i) }

// Signal sends a signal to the whole group.
func (c *Child) Signal(s unix.Signal) {
	c.asked = c.asked || s == unix.SIGTSTP
	unix.Kill(-c.pid, s)
}

// Suspend stops the program itself, as a shell expects of a job whose command has stopped. It does so only where there
// is a terminal. The program may go on for a while after it has stopped itself: what continues the command is the
// signal that continues the program.
//
// A shell sends no signal to a job that is at work in the background when it brings the job to the foreground. The
// command stops there when it reads from the terminal, and goes on with it.
func (c *Child) Suspend() {
	if c.tty == nil {
		return
	}
	if c.tty.mine() && !c.asked {
		c.Resume()
		return
	}
	c.asked = false
	c.tty.pass(c.pid, unix.Getpgrp())
	unix.Kill(unix.Getpid(), unix.SIGSTOP)
}

// Resume continues the command, with the terminal if the program has it. It is called when the program gets CONT.
func (c *Child) Resume() {
	if c.tty != nil {
		c.tty.pass(unix.Getpgrp(), c.pid)
	}
	c.Signal(unix.SIGCONT)
}

// End ends what is left of the group: it asks, and kills after the grace. Then it reaps the first process and returns
// its exit code, which is 128 and the signal's number if a signal ended it. It is called after Exited.
func (c *Child) End(grace time.Duration) int {
	if c.alive() {
		c.Signal(unix.SIGTERM)
		c.Signal(unix.SIGCONT)
		for end := time.Now().Add(grace); c.alive() && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
		}
	}
	for c.alive() {
		c.Signal(unix.SIGKILL)
		time.Sleep(5 * time.Millisecond)
	}
	var status unix.WaitStatus
	for {
		if _, err := unix.Wait4(c.pid, &status, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if c.tty != nil {
		c.tty.pass(c.pid, unix.Getpgrp())
	}
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// Release ends the guardian. It is called when the group is at its end.
func (c *Child) Release() {
	fmt.Fprintln(c.lines, "done")
	c.lines.Close()
	if c.gate != nil {
		c.gate.Close()
	}
	c.guard.Wait()
}

// alive reports whether a process of the group is more than a zombie.
func (c *Child) alive() bool {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, after, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
		fields := strings.Fields(after) // state, ppid, pgrp, ...
		if len(fields) < 3 || fields[0] == "Z" || fields[0] == "X" {
			continue
		}
		if pgrp, err := strconv.Atoi(fields[2]); err == nil && pgrp == c.pid {
			return true
		}
	}
	return false
}
