//go:build unix

package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"regexp"
	"testing"
)

// told is where a reply to HELLO tells the version.
var told = regexp.MustCompile(`\$7\r\nversion\r\n\$\d+\r\n[^\r]*\r\n`)

// Pretend starts a proxy in front of a server, until the end of the test, and returns its
// address. HELLO through it tells another version, or if that is empty is an unknown command.
func Pretend(t testing.TB, s *Server, version string) (addr string) {
	t.Helper()
	return NewRelay(t, s.Addr(), func(l *Line) (up, down func()) {
		return func() { pretend(l.Client, l.Server, version) }, func() {
			for c := range l.Chunks(l.Server) {
				out := c.Data
				if version != "" {
					out = told.ReplaceAll(out, fmt.Appendf(nil, "$$7\r\nversion\r\n$$%d\r\n%s\r\n", len(version), version))
				}
				if _, err := l.Client.Write(out); err != nil {
					return
				}
			}
		}
	}).Addr()
}

// pretend passes on what a client sends.
func pretend(client io.Reader, server io.Writer, version string) {
	for in := bufio.NewReader(client); ; {
		args, raw, err := readCommand(in)
		if err != nil {
			return
		}
		if version == "" && len(args) > 0 && bytes.EqualFold([]byte(args[0]), []byte("HELLO")) {
			raw = []byte("*1\r\n$7\r\nNOHELLO\r\n")
		}
		if _, err := server.Write(raw); err != nil {
			return
		}
	}
}
