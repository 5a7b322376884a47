//go:build unix

// Package child runs a test's own binary again, as another process that is told by its environment what to do.
package child

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// Process is such a process, and what it says.
type Process struct {
	*exec.Cmd
	// In is its standard input; closing it may be the sign to begin.
	In    io.Closer
	lines *bufio.Scanner
}

// Start starts a process with further variables, such as "MORTISE_TEST_HOLDER_OF=path". It ends with the test.
func Start(t *testing.T, env ...string) *Process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr, cmd.SysProcAttr = append(os.Environ(), env...), os.Stderr, redistest.DieWithParent()
	in, err := cmd.StdinPipe()
	check.NoError(t, err)
	out, err := cmd.StdoutPipe()
	check.NoError(t, err)
	check.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &Process{cmd, in, bufio.NewScanner(out)}
}

// Says ends the test unless the next line that the process writes is want.
func (p *Process) Says(t *testing.T, want string) {
	t.Helper()
	check.FatalIf(t, !p.lines.Scan() || p.lines.Text() != want, "the process said %q, want %q", p.lines.Text(), want)
}

// Kill kills the process, and waits for its end.
func (p *Process) Kill(t *testing.T) {
	t.Helper()
	check.NoError(t, p.Process.Kill())
	_ = p.Wait()
}
