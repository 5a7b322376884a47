//go:build linux || darwin

package sqlite

import (
	"strings"

	"github.com/mortise-go/mortise/backend"
)

func init() {
	backend.Register("sqlite", func(address string) (backend.Backend, error) {
		path := strings.TrimPrefix(address, "sqlite:")
		if strings.HasPrefix(path, "///") { // sqlite:///var/lib/locks.db, with an empty host
			path = path[2:]
		}
		if _, err := newDriver(path); err != nil {
			return nil, err
		}
		return New(path), nil
	})
}
