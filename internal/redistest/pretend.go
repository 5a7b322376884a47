//go:build unix

package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"regexp"
	"sync"
	"testing"
)

// told is where a reply to HELLO tells the version.
var told = regexp.MustCompile(`\$7\r\nversion\r\n\$\d+\r\n[^\r]*\r\n`)

// Pretend starts a proxy in front of a server, until the end of the test, and returns its
// address. HELLO through it tells another version, or if that is empty is an unknown command.
func Pretend(t testing.TB, s *Server, version string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	var all sync.WaitGroup
	var conns sync.Map
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", s.Addr())
			if err != nil {
				client.Close()
				continue
			}
			conns.Store(client, server)
			all.Go(func() { pretend(client, server, version); server.Close() })
			all.Go(func() {
				defer client.Close()
				for b := make([]byte, 64<<10); ; {
					n, err := server.Read(b)
					if err != nil {
						return
					}
					out := b[:n]
					if version != "" {
						out = told.ReplaceAll(out, fmt.Appendf(nil, "$$7\r\nversion\r\n$$%d\r\n%s\r\n", len(version), version))
					}
					if _, err := client.Write(out); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		conns.Range(func(client, server any) bool {
			client.(net.Conn).Close()
			server.(net.Conn).Close()
			return true
		})
		all.Wait()
	})
	return l.Addr().String()
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
