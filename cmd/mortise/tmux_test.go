//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// pane is a terminal of tmux, with a shell that has job control, and the program as mortise.
type pane struct {
	t      *testing.T
	socket string
	env    []string
}

// openPane opens a terminal whose programs use a store.
func openPane(t *testing.T, store string, width, height int, env ...string) *pane {
	t.Helper()
	check.Long(t)
	dir := check.Value(os.MkdirTemp("", "mortise")).In(t) // the path of a socket is short
	t.Cleanup(func() { os.RemoveAll(dir) })
	check.Done(t, os.Symlink(check.Value(os.Executable()).In(t), dir+"/mortise"))
	p := &pane{t: t, socket: dir + "/tmux"}
	p.env = append(os.Environ(), asMain+"=1", "MORTISE_STORE="+store, "GORACE=atexit_sleep_ms=10",
		"PATH="+dir+":"+os.Getenv("PATH"), "HISTFILE=/dev/null", "LC_ALL=C.UTF-8", "TMUX=", "NO_COLOR=")
	p.env = append(p.env, env...)
	server := exec.Command("tmux", "-u", "-D", "-S", p.socket, "-f", "/dev/null")
	server.Env = p.env
	server.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	check.NoError(t, server.Start())
	t.Cleanup(func() { p.try("kill-server"); server.Process.Kill(); server.Wait() })
	p.until("the terminal is there", func() bool {
		_, err := p.try("new-session", "-d", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height),
			"exec bash --norc --noprofile -i")
		return err == nil
	})
	p.shows(`^bash.*[$#]$`)
	return p
}

func (p *pane) try(args ...string) (string, error) {
	c := exec.Command("tmux", append([]string{"-u", "-N", "-S", p.socket}, args...)...) // starts no server
	c.Env = p.env                                                                       // tmux takes PATH from it
	out, err := c.Output()
	return string(out), err
}

// tmux runs a command of tmux.
func (p *pane) tmux(args ...string) string {
	p.t.Helper()
	return check.Value(p.try(args...)).In(p.t)
}

// press presses keys that have names, such as C-c.
func (p *pane) press(keys ...string) {
	p.t.Helper()
	p.tmux(append([]string{"send-keys"}, keys...)...)
}

// enter types a line.
func (p *pane) enter(line string) {
	p.t.Helper()
	p.tmux("send-keys", "-l", line)
	p.press("Enter")
}

// shell awaits that the shell has the terminal again: what is typed before may be another's, or be thrown away.
func (p *pane) shell() {
	p.t.Helper()
	p.until("the shell has the terminal", func() bool {
		return strings.TrimSpace(p.tmux("display-message", "-p", "#{pane_current_command}")) == "bash"
	})
}

// screen is what the terminal shows, without the space at the ends of lines.
func (p *pane) screen() string {
	p.t.Helper()
	return p.tmux("capture-pane", "-p")
}

// until awaits something.
func (p *pane) until(what string, ok func() bool) {
	p.t.Helper()
	check.Long(p.t)
	for end := time.Now().Add(within); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			screen, _ := p.try("capture-pane", "-p")
			p.t.Fatalf("not in %v: %s\n%s", within, what, screen)
		}
	}
}

// shows awaits that a line of the screen matches a pattern, and returns the last group of the last that does.
func (p *pane) shows(pattern string) (last string) {
	p.t.Helper()
	re := regexp.MustCompile("(?m)" + pattern)
	p.until("the screen shows "+pattern, func() bool {
		all := re.FindAllStringSubmatch(p.screen(), -1)
		if len(all) > 0 {
			m := all[len(all)-1]
			last = m[len(m)-1]
		}
		return len(all) > 0
	})
	return last
}

// ids are what the system knows of a process: from its state, its parent, its group, its session, its terminal, and the
// terminal's foreground group on.
func ids(t *testing.T, pid string) []string {
	t.Helper()
	text := string(check.Value(os.ReadFile("/proc/" + pid + "/stat")).In(t))
	return strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
}

// parent is the process that started another.
func parent(t *testing.T, pid string) string { t.Helper(); return ids(t, pid)[1] }

// foreground reports whether the group of a process has the terminal.
func foreground(t *testing.T, pid string) bool { t.Helper(); i := ids(t, pid); return i[2] == i[5] }

// Commands that start others in a loop are of bash: dash starts them by vfork, and a TSTP in the middle of one never
// stops dash, with or without mortise.

// An interactive shell suspends, continues, resizes and interrupts a run as it would the command by itself.
func TestAShellControlsARunAsAJob(t *testing.T) {
	check.Long(t)
	server := redistest.Start(t)
	p := openPane(t, at(server), 100, 30)
	p.enter(`mortise run n -- bash -c 'trap "echo size \$(stty size)" WINCH; echo "at $$"; while :; do sleep 0.02; done'`)
	child := p.shows(`^at (\d+)$`)
	self := parent(t, child)
	check.Equal(t, "%v keys have the lock's name", fmt.Sprint(server.Must("EXISTS", "n")), "1")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(self, ids(t, self)[:6], child, ids(t, child)[:6])
		}
	})
	for n := range 3 {
		p.press("C-z")
		p.until("both are stopped", func() bool { return stopped(self) && stopped(child) })
		p.shell()
		p.enter(fmt.Sprintf("echo shell $((%d+40))", n))
		p.shows(fmt.Sprintf("^shell %d$", n+40))
		p.enter([]string{"fg", "bg", "fg"}[n])
		p.until("both go on", func() bool { return !stopped(self) && !stopped(child) })
		if n == 1 { // in the background; the shell still has the terminal
			p.enter("echo shell $((50+5))")
			p.shows("^shell 55$")
			p.enter("fg")
		}
		p.until("the job has the terminal", func() bool { return foreground(t, self) || foreground(t, child) })
		p.tmux("resize-window", "-x", fmt.Sprint(90-n), "-y", "30")
		p.shows(fmt.Sprintf("^size 30 %d$", 90-n))
	}
	p.press("C-c")
	p.shell()
	p.enter(`echo "code $?"`)
	check.Equal(t, "exit code %s", p.shows(`^code (\d+)$`), "130")
	check.ErrorIf(t, alive(child) || alive(self), "processes are left")
	check.Equal(t, "%v keys have the lock's name", fmt.Sprint(server.Must("EXISTS", "n")), "0")
}

// A run that begins in the background gets the terminal when the shell brings it to the foreground.
func TestARunInTheBackgroundComesToTheForeground(t *testing.T) {
	check.Long(t)
	dir := t.TempDir()
	p := openPane(t, at(redistest.Start(t)), 100, 30, "TMPDIR="+dir)
	p.enter(`mortise run n -- sh -c 'echo "at $$"; read x; echo "got $x"; read x; exit 7' &`)
	child := p.shows(`at (\d+)$`)
	self := parent(t, child)
	p.until("both are stopped: they would read from the terminal", func() bool { return stopped(self) && stopped(child) })
	p.enter("fg")
	p.until("both go on", func() bool { return !stopped(self) && !stopped(child) })
	p.enter("one")
	p.shows("^got one$")
	p.press("C-z")
	p.until("both are stopped", func() bool { return stopped(self) && stopped(child) })
	p.shell()
	p.enter("fg")
	p.until("both go on", func() bool { return !stopped(self) && !stopped(child) })
	p.enter("two")
	p.shell()
	p.enter(`echo "code $?"`)
	check.Equal(t, "exit code %s", p.shows(`^code (\d+)$`), "7")

	// The shell brings a job that is at work to the foreground without a signal.
	p.enter(`mortise run n -- bash -c 'echo "then at $$"; until [ -e "$TMPDIR/go" ]; do sleep 0.02; done; ` +
		`read x; echo "got $x"' &`)
	child = p.shows(`then at (\d+)$`)
	self = parent(t, child)
	p.enter("fg")
	p.until("it is in the foreground", func() bool { return foreground(t, self) })
	p.press("C-z")
	p.until("it is stopped", func() bool { return stopped(self) })
	p.shell()
	p.enter("bg; fg")
	p.until("it, or its command, is in the foreground", func() bool {
		return (foreground(t, self) || foreground(t, child)) && !stopped(self) && !stopped(child)
	})
	check.Done(t, os.WriteFile(dir+"/go", nil, 0o600))
	p.enter("three")
	p.shows("^got three$")
	p.shell()
	p.enter(`echo "then $?"`)
	check.Equal(t, "exit code %s", p.shows(`^then (\d+)$`), "0")
}
