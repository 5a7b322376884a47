//go:build unix

// Package child runs a test's own binary again, as another process that is told by its environment what to do.
package child

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// Process is such a process, and what it says.
type Process struct {
	*exec.Cmd
	// In is its standard input; closing it may be the sign to begin.
	In  io.Closer
	out *bufio.Reader
}

// Start starts a process with further variables, such as "MORTISE_TEST_HOLDER_OF=path". It ends with the test.
func Start(t testing.TB, env ...string) *Process {
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
	return &Process{cmd, in, bufio.NewReader(out)}
}

// Says ends the test unless the next line that the process writes is want.
func (p *Process) Says(t testing.TB, want string) {
	t.Helper()
	got := p.Line(t)
	check.FatalIf(t, got != want, "the process said %q, want %q", got, want)
}

// Line returns the next line that the process writes, of any length.
func (p *Process) Line(t testing.TB) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	check.FatalIf(t, err != nil, "the process said %q, and then: %v", line, err)
	return strings.TrimSuffix(line, "\n")
}

// Kill kills the process, and waits for its end.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	check.NoError(t, p.Process.Kill())
	_ = p.Wait()
}
