package redistest

import "syscall"

// DieWithParent has the kernel kill a process when the test binary dies.
func DieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
