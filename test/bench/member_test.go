//go:build linux

package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/mortise-go/mortise/test/internal/harness"
)

// member is a process that does tasks, one after the other. It is told, and answers, in lines:
//
//	a task as JSON    "ready"
//	"begin"           nothing: the witness shows what goes on
//	"measure"         nothing
//	"end"             its report as JSON
type member struct {
	*harness.Process
	busy  bool        // it has a task
	guard *time.Timer // asks for its stacks and ends it, if a task takes for ever
}

// startMember starts a process that ends with this one. Its tasks are bounded, each.
func startMember(cmd *exec.Cmd) (*member, error) {
	p, err := harness.Talk(cmd)
	return &member{Process: p}, err
}

// enlist starts a test binary as a worker: this one again, if binary is empty.
func enlist(binary string) (*member, error) {
	cmd := harness.Self(workerEnv, 1)
	if binary != "" {
		cmd.Path = binary
	}
	// The race detector makes a process sleep for a second at its end, by default.
	cmd.Env = append(cmd.Env, "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	return startMember(cmd)
}

// give starts a task, which takes bound at most.
func (m *member) give(k task, bound time.Duration) error {
	m.busy = true
	m.guard = time.AfterFunc(bound, func() {
		m.Cmd.Process.Signal(syscall.SIGQUIT)
		time.AfterFunc(10*time.Second, func() { m.Cmd.Process.Kill() })
	})
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return m.tell(string(text))
}

func (m *member) tell(line string) error { return m.failed(m.Tell(line)) }

// await is the next line.
func (m *member) await() ([]byte, error) {
	line, err := m.Out.ReadBytes('\n')
	return line, m.failed(err)
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

// failed ends the process if err is one, and says what the process said.
func (m *member) failed(err error) error {
	if err == nil {
		return nil
	}
	m.dismiss()
	return fmt.Errorf("a worker failed: %w\n%s", err, m.Output.String())
}

// dismiss ends it. It may be called again.
func (m *member) dismiss() {
	if m.guard != nil {
		m.guard.Stop()
	}
	m.Kill()
}
