//go:build unix

package redistest

import (
	"os"
	"path/filepath"

	"github.com/mortise-go/mortise/internal/redistest/check"
)

// WithSocket has the server listen on [Server.Socket] too.
func WithSocket() Option {
	return func(s *Server) {
		dir, err := os.MkdirTemp("", "redistest") // t.TempDir has the test's name: too long for a socket's path
		check.FatalIf(s.t, err != nil, "redistest: %v", err)
		s.t.Cleanup(func() { os.RemoveAll(dir) })
		s.socket = filepath.Join(dir, "redis.sock")
		s.config = append(s.config, "unixsocket "+s.socket, "unixsocketperm 700")
	}
}

// Socket is the path of the server's Unix socket, with [WithSocket].
func (s *Server) Socket() string { return s.socket }
