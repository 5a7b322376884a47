package redisgo

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise/internal/redistest/check"
)

// The engine repeats commands: a repeat by go-redis as well multiplies the dials of a call.
func TestNoCommandIsRepeatedByGoRedis(t *testing.T) {
	for what, command := range map[string]func(*adapter) error{
		"HELLO": func(a *adapter) error { _, err := a.Hello(t.Context()); return err },
		"PING":  func(a *adapter) error { return a.Ping(t.Context()) },
		"SCRIPT LOAD": func(a *adapter) error {
			return a.LoadScripts(t.Context(), []string{"return 1", "return 2"})
		},
		"PUBSUB SHARDNUMSUB": func(a *adapter) error { return a.AskSharded(t.Context()) },
	} {
		dials := 0
		rdb := redis.NewClient(&redis.Options{
			Addr: "localhost:1", DialerRetries: 1,
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				dials++
				return nil, &net.OpError{Op: "dial", Err: errors.New("no server")}
			},
		})
		defer rdb.Close()
		a := &adapter{commands: newCommands(rdb, false)}
		check.ErrorIf(t, command(a) == nil, "%s: no error", what)
		// go-redis 9.23 has a pool for pipelines, and asks its other pool if a dial for the former fails; nothing is sent
		// before. A command that is repeated has four dials or more.
		pools := 1
		if what == "SCRIPT LOAD" {
			pools = 2
		}
		check.ErrorIf(t, dials < 1 || dials > pools, "%s: %d dials, want %d at most", what, dials, pools)
	}
}
