//go:build unix && !linux

package redistest

import "syscall"

// DieWithParent is nothing here: only Linux ends a process with its parent.
func DieWithParent() *syscall.SysProcAttr { return nil }
