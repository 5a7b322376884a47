//go:build unix

package harness

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/mortise-go/mortise/internal/redistest"
)

// Process is a program that a test has started. It ends with the test binary.
type Process struct {
	Cmd    *exec.Cmd
	Output Tail          // what it said, of [Start]; on standard error, of [Talk]
	Gone   chan struct{} // closed when it has ended
	Err    error         // what it ended with, once Gone is closed
	Killed bool          // by [Process.Kill]

	In  io.WriteCloser // its standard input, of [Talk]
	Out *bufio.Reader  // its standard output, of [Talk]
	out *io.PipeReader
}

// Worker makes the test binary a worker if the environment variable env tells it to be one: it
// runs work with the configuration that [Self] was given, and ends the process.
func Worker[C any](env string, work func(C) error) {
	text := os.Getenv(env)
	if text == "" {
		return
	}
	var c C
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		err = work(c)
	}
	OK(InWorker{}, err)
	os.Exit(0)
}

// InWorker stands for the test in a [Worker]'s process: a fatal error is said, and ends the process.
type InWorker struct{}

// Helper does nothing.
func (InWorker) Helper() {}

// Fatal ends the process.
func (InWorker) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, append([]any{"worker:"}, args...)...)
	os.Exit(1)
}

// Fatalf ends the process.
func (w InWorker) Fatalf(format string, args ...any) { w.Fatal(fmt.Sprintf(format, args...)) }

// Error ends the process.
func (w InWorker) Error(args ...any) { w.Fatal(args...) }

// Errorf ends the process.
func (w InWorker) Errorf(format string, args ...any) { w.Fatalf(format, args...) }

// Self is the command that runs the test binary again as a [Worker] with a configuration.
func Self(env string, config any) *exec.Cmd {
	text, err := json.Marshal(config)
	if err != nil {
		panic(err) // configurations are made of plain fields
	}
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), env+"="+string(text))
	return cmd
}

// Start starts a process. What it says is kept in Output.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{Cmd: cmd, Gone: make(chan struct{})}
	cmd.Stdout = &p.Output
	return p, p.start()
}

// Talk starts a process that is told what to do on its standard input and answers on its standard
// output, each in lines.
func Talk(cmd *exec.Cmd) (p *Process, err error) {
	p = &Process{Cmd: cmd, Gone: make(chan struct{})}
	if p.In, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	var out *io.PipeWriter
	p.out, out = io.Pipe()
	p.Out, cmd.Stdout = bufio.NewReader(p.out), out
	if err := p.start(); err != nil {
		return nil, err
	}
	go func() {
		<-p.Gone
		out.Close()
	}()
	return p, nil
}

func (p *Process) start() error {
	p.Cmd.Stderr = &p.Output
	p.Cmd.SysProcAttr = redistest.DieWithParent()
	if err := p.Cmd.Start(); err != nil {
		return err
	}
	go func() {
		p.Err = p.Cmd.Wait()
		close(p.Gone)
	}()
	return nil
}

// Tell writes a line to its standard input.
func (p *Process) Tell(line string) error {
	_, err := io.WriteString(p.In, line+"\n")
	return err
}

// Kill ends it with SIGKILL and waits until it has ended. It may be called again.
func (p *Process) Kill() {
	p.Killed = true
	p.Cmd.Process.Kill()
	if p.out != nil {
		p.out.Close()
	}
	<-p.Gone
}

// Ends waits until the process ends by itself, for d at most. Later it is asked for its stacks,
// by SIGQUIT, and ended.
func (p *Process) Ends(d time.Duration) error {
	select {
	case <-p.Gone:
		return p.Err
	case <-time.After(d):
	}
	p.Cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-p.Gone:
	case <-time.After(10 * time.Second):
		p.Kill()
	}
	return fmt.Errorf("it did not end within %v", d)
}

// Freeze stops it, by SIGSTOP, and waits until it has stopped. Linux only.
func (p *Process) Freeze() error {
	if err := p.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	stopped := Awaits(time.Minute, func() bool {
		// Its state is the first letter after the name in parentheses.
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Cmd.Process.Pid))
		i := bytes.LastIndexByte(stat, ')')
		return err == nil && i >= 0 && i+2 < len(stat) && stat[i+2] == 'T'
	})
	if !stopped {
		return errors.New("the process did not stop")
	}
	return nil
}

// Thaw lets it go on, by SIGCONT.
func (p *Process) Thaw() error { return p.Cmd.Process.Signal(syscall.SIGCONT) }

// Tail keeps the last 64 KiB of what is written to it. Its methods may be called concurrently.
type Tail struct {
	mu  sync.Mutex
	buf []byte
}

// Write takes p.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if n := len(t.buf) - 64<<10; n > 0 {
		t.buf = append(t.buf[:0], t.buf[n:]...)
	}
	return len(p), nil
}

func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
