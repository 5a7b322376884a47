package redisproto

import (
	"fmt"

	"github.com/mortise-go/mortise/backend"
)

// Busy implements [backend.BusyStore].
func (s busy) Busy(name string) error {
	if err := s.exhausted(name); err != nil {
		return &backend.Fault{Err: err, Remedy: remedyPool, Temporary: true}
	}
	return nil
}

// exhausted returns an error if all connections of the client's pool are in use.
func (s *core) exhausted(name string) error {
	p, is := s.adapter.(Pooler)
	if !is {
		return nil
	}
	used, size := p.Pool(name)
	if size <= 0 || used < size {
		return nil
	}
	return fmt.Errorf("pool exhausted: %d of %d connections in use", used, size)
}
