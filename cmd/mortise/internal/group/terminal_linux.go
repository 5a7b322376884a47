package group

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminal is the terminal that the program was started from, in its foreground or not.
type terminal struct{ fd int }

// controlling returns the terminal at the standard input, if it controls the program's session.
func controlling() *terminal {
	t := &terminal{int(os.Stdin.Fd())}
	if _, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err != nil {
		return nil
	}
	return t
}

// mine reports whether the program's group has the terminal.
func (t *terminal) mine() bool {
	pgrp, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && pgrp == unix.Getpgrp()
}

// pass gives the terminal from one group to another, unless a third has it: a shell that took it back keeps it.
func (t *terminal) pass(from, to int) {
	if pgrp, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err == nil && pgrp == from {
		unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, to)
	}
}
