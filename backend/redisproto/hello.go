package redisproto

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/mortise-go/mortise/backend"
)

// oldest is the oldest major version of Redis that the scripts are tested on. On older versions the time advances while
// a script runs. Valkey began at 7.2.
const oldest = 7

// newGreeting returns a Lazy that asks for the server's version, until there is an answer; nil if the adapter cannot
// ask.
func newGreeting(s *core) *Lazy[struct{}] {
	g, ok := s.adapter.(Greeter)
	if !ok {
		return nil
	}
	return NewLazy(func() (struct{}, error) {
		server, version, err := g.Hello(s.ctx)
		if err != nil {
			if _, replied := s.adapter.ServerError(err); replied {
				err = nil // no HELLO on the server or a proxy; or all commands are refused, and the next one fails itself
			}
			return struct{}{}, err
		}
		major, _, _ := strings.Cut(version, ".")
		if n, err := strconv.Atoi(major); err == nil && n < oldest {
			return struct{}{}, &backend.Fault{
				Err:    fmt.Errorf("the server says that it is %.40q, version %.40q", server, version),
				Remedy: "mortise needs Redis 7.0 or newer, or Valkey: upgrade the server",
			}
		}
		return struct{}{}, nil
	}, func(struct{}) {})
}

// greet returns an error if the server is too old, or was not reached.
func (s *core) greet(ctx context.Context) error {
	if s.greeting == nil || s.greeting.Built() {
		return nil
	}
	_, err := s.greeting.Get(ctx)
	return s.fault(err)
}
