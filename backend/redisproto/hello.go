package redisproto

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/mortise-go/mortise/backend"
)

// oldest is the oldest major version of Redis that the scripts are tested on. On older versions the time advances while
// a script runs. Valkey began at 7.2.
const oldest = 7

// newGreeting returns a Lazy that asks for the server's version and mode, until there is an answer; nil if the adapter
// cannot ask.
func newGreeting(s *core) *Lazy[struct{}] {
	g, ok := s.adapter.(Greeter)
	if !ok {
		return nil
	}
	return NewLazy(func() (struct{}, error) {
		hello, err := g.Hello(s.ctx)
		if err != nil {
			if _, replied := s.adapter.ServerError(err); replied {
				err = nil // no HELLO on the server or a proxy; or all commands are refused, and the next one fails itself
			}
			return struct{}{}, err
		}
		major, _, _ := strings.Cut(hello["version"], ".")
		if n, err := strconv.Atoi(major); err == nil && n < oldest {
			return struct{}{}, &backend.Fault{
				Err:    fmt.Errorf("the server says that it is %.40q, version %.40q", hello["server"], hello["version"]),
				Remedy: "mortise needs Redis 7.0 or newer, or Valkey: upgrade the server",
			}
		}
		// Single locks might work, and then all renewals of names in several slots fail, and all leases are lost.
		if hello["mode"] == "cluster" && !s.adapter.Features().Cluster {
			return struct{}{}, &backend.Fault{
				Err:    errors.New("the server is a node of a cluster, the client is a client of a single server"),
				Remedy: remedyCluster + " itself, and not a wrapper of one",
			}
		}
		if mode := hello["mode"]; mode != "" && mode != "cluster" {
			s.single.Store(s.adapter.Features().Cluster)
		}
		return struct{}{}, nil
	}, func(struct{}) {})
}

// greet returns an error if the server is too old, or a cluster behind a client of a single server, or was not reached.
func (s *core) greet(ctx context.Context) error {
	if s.greeting == nil || s.greeting.Built() {
		return nil
	}
	_, err := s.greeting.Get(ctx)
	return s.fault(err)
}
