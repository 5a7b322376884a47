package group

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// look is how often the guardian compares the deadline with the clock, at least: a timer of Go stands still while the
// machine sleeps.
const look = 100 * time.Millisecond

// Guard is the guardian. It reads lines: "group N", answered with "ok"; "until N", an Instant; and "done", which ends
// it. It kills the group at the deadline, and says "killed", or when the lines end without "done".
func Guard(in io.Reader, out io.Writer) error {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE, unix.SIGTSTP)
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			lines <- s.Text()
		}
	}()
	var (
		pgid   int
		until  Instant
		killed bool
	)
	kill := func() {
		if pgid > 1 {
			unix.Kill(-pgid, unix.SIGKILL)
		}
	}
	clock := time.NewTimer(look)
	defer clock.Stop()
	for {
		next := look
		if left := until.Left(); pgid > 1 && left < look {
			next = max(left, time.Millisecond)
		}
		clock.Reset(next)
		select {
		case line, ok := <-lines:
			word, number, _ := strings.Cut(line, " ")
			n, err := strconv.ParseInt(number, 10, 64)
			switch {
			case !ok:
				kill()
				return io.ErrUnexpectedEOF
			case word == "done":
				return nil
			case err != nil:
				kill()
				return fmt.Errorf("not understood: %q", line)
			case word == "group":
				pgid = int(n)
				fmt.Fprintln(out, "ok")
			case word == "until":
				until = Instant(n)
			}
		case <-clock.C:
			if pgid > 1 && until.Left() <= 0 {
				kill() // again each time: a process may be forked meanwhile
				if !killed {
					killed = true
					fmt.Fprintln(out, "killed")
				}
			}
		}
	}
}

// Exec is the starter: it waits for a byte on descriptor 3, and becomes the command. It returns only if that fails.
func Exec(path string, args []string) error {
	gate := os.NewFile(3, "gate")
	if n, _ := gate.Read(make([]byte, 1)); n != 1 {
		return io.ErrUnexpectedEOF
	}
	gate.Close()
	return unix.Exec(path, args, os.Environ())
}
