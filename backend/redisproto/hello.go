package redisproto

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/mortise-go/mortise/backend"
)

// oldest is the first major version of Redis that the scripts are tested on. Before it, time goes
// on within a script. Valkey began at 7.2.
const oldest = 7

// newGreeting asks which server there is, until there is an answer; nil if the adapter cannot ask.
func newGreeting(s *core) *Lazy[struct{}] {
	g, ok := s.adapter.(Greeter)
	if !ok {
		return nil
	}
	return NewLazy(func() (struct{}, error) {
		server, version, err := g.Hello(s.ctx)
		if err != nil {
			if _, replied := s.adapter.ServerError(err); replied {
				err = nil // the server or a proxy does not know HELLO, or refuses all: the command itself will tell
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

// greet returns an error where the server is too old, or was not reached.
func (s *core) greet(ctx context.Context) error {
	if s.greeting == nil || s.greeting.Built() {
		return nil
	}
	_, err := s.greeting.Get(ctx)
	return s.fault(err)
}
