package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/mortise-go/mortise/cmd/mortise/internal/group"
)

// hidden runs the program as one of its helpers: see package group.
func hidden(args []string) (code int, ok bool) {
	switch {
	case len(args) == 1 && args[0] == group.GuardCommand:
		if err := group.Guard(os.Stdin, os.Stdout); err != nil {
			return codeInternal, true
		}
		return 0, true
	case len(args) > 1 && args[0] == group.ExecCommand:
		err := group.Exec(args[1], args[2:])
		fmt.Fprintf(os.Stderr, "mortise: %s: %v\n", args[1], err)
		if errors.Is(err, unix.ENOENT) {
			return codeNotFound, true
		}
		return codeNotExec, true
	}
	return 0, false
}
