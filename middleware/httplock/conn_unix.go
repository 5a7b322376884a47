//go:build unix

package httplock

import "syscall"

// look looks at a connection, and reads nothing from it.
func look(c syscall.RawConn) (seen sight) {
	err := c.Control(func(fd uintptr) {
		var b [1]byte
		switch n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT); {
		case err == syscall.ECONNRESET, err == nil && n <= 0:
			seen = gone
		case err == nil:
			seen = more
		}
	})
	if err != nil { // the connection was closed here
		return gone
	}
	return seen
}
