//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// pty opens a terminal: what is written to master is typed, and what programs write to tty is read from master.
func pty(t *testing.T) (master, tty *os.File) {
	t.Helper()
	master = check.Value(os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)).In(t)
	t.Cleanup(func() { master.Close() })
	check.Done(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n := check.Value(unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)).In(t)
	tty = check.Value(os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)).In(t)
	return master, tty
}

// stopped reports whether all threads of a process are stopped.
func stopped(pid string) bool {
	all, _ := filepath.Glob("/proc/" + pid + "/task/*/stat")
	for _, path := range all {
		if text, err := os.ReadFile(path); err == nil && !strings.Contains(string(text), ") T ") {
			return false
		}
	}
	return len(all) > 0
}

// As in a shell with job control: Ctrl-Z stops the program and the command, and the command goes on, and reads from the
// terminal, when the program is continued.
func TestATerminalStopsAndContinuesTheCommand(t *testing.T) {
	check.Long(t)
	server := redistest.Start(t)
	master, tty := pty(t)
	p := exec.Command(check.Value(os.Executable()).In(t), "run", "n", "--", "sh", "-c",
		`echo "at $$"; read x; echo "first: $x"; read x; echo "second: $x"; stty size`)
	p.Env = append(os.Environ(), asMain+"=1", "MORTISE_STORE="+at(server))
	p.Stdin, p.Stdout, p.Stderr = tty, tty, tty
	p.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: unix.SIGKILL}
	check.Done(t, p.Start())
	check.Done(t, tty.Close()) // master is at its end when the last program is
	defer p.Process.Kill()
	late := time.AfterFunc(time.Minute, func() { p.Process.Kill() }) // ends a read of what does not come
	defer late.Stop()
	lines := bufio.NewScanner(master)
	line := func(with string) string {
		t.Helper()
		for lines.Scan() {
			if text := strings.TrimSpace(lines.Text()); strings.HasPrefix(text, with) {
				return strings.TrimSpace(strings.TrimPrefix(text, with))
			}
		}
		t.Fatalf("no line %q...: %v", with, lines.Err())
		return ""
	}
	child, self := line("at "), fmt.Sprint(p.Process.Pid)
	type_ := func(text string) { check.Value(master.WriteString(text)).In(t) }
	type_("one\n")
	check.Equal(t, "the command read %q", line("first: "), "one")
	for range 3 {
		type_("\x1a") // Ctrl-Z
		for until := time.Now().Add(20 * time.Second); !stopped(self); time.Sleep(time.Millisecond) {
			check.FatalIf(t, time.Now().After(until), "the program is not stopped")
		}
		check.ErrorIf(t, !stopped(child), "the program is stopped, and the command goes on")
		check.Done(t, p.Process.Signal(unix.SIGCONT)) // fg
		for until := time.Now().Add(20 * time.Second); stopped(child); time.Sleep(time.Millisecond) {
			check.FatalIf(t, time.Now().After(until), "the command is not continued")
		}
	}
	check.Done(t, unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 31, Col: 97}))
	type_("two\n")
	check.Equal(t, "the command read %q", line("second: "), "two")
	check.Equal(t, "the size of its terminal is %q", line("31 "), "97")
	check.Done(t, p.Wait())
}
