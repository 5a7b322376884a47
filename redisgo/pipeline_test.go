package redisgo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// wrapping is a hook that puts words before what a pipeline came to, as hooks for tracing do.
type wrapping struct{ before error }

func (wrapping) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (wrapping) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (w wrapping) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if w.before != nil {
			return w.before
		}
		if err := next(ctx, cmds); err != nil {
			return fmt.Errorf("traced: %w", err)
		}
		return nil
	}
}

// What one of a pipeline came to says nothing about the others, whatever a hook makes of it.
func TestAHookThatWrapsSpoilsNoOtherCommand(t *testing.T) {
	srv := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	rdb.AddHook(wrapping{})
	ctx := context.Background()
	bad, good := newCmd(ctx, "hlen", "string"), newCmd(ctx, "incr", "n")
	srv.Must("SET", "string", "x")
	send(ctx, rdb, []redis.Cmder{bad, good})
	if good.Err() != nil || good.Val() != int64(1) {
		t.Errorf("the good one: %v, %v", good.Val(), good.Err())
	}
	check.ErrorIf(t, bad.Err() == nil, "the bad one has no error")
}

// A hook that refuses a pipeline has refused each of it; its error is not taken for a reply of the
// server's, which would say that nothing was done.
func TestAHookThatRefusesIsNoReply(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	cause := errors.New("not now")
	rdb.AddHook(wrapping{before: fmt.Errorf("%w: %w", cause, reply("WRONGTYPE no"))})
	ctx := context.Background()
	cmds := []redis.Cmder{newCmd(ctx, "incr", "n"), newCmd(ctx, "incr", "n")}
	send(ctx, rdb, cmds)
	for _, cmd := range cmds {
		if !errors.Is(cmd.Err(), cause) {
			t.Errorf("%v, want the hook's error", cmd.Err())
		}
		text, is := new(adapter).ServerError(cmd.Err())
		check.ErrorIf(t, is, "it is taken for the server's reply %q", text)
	}
}

// failing is a hook that returns an error of its own after a command, as one that writes a log elsewhere may.
type failing struct {
	wrapping
	after error
}

func (f failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := next(ctx, cmd); cmd.Name() != "incr" {
			return err // the connection's own
		}
		return f.after
	}
}

// The command has run: the error of a hook does not say otherwise.
func TestTheErrorOfAHookAfterACommandDoesNotSayThatNothingWasDone(t *testing.T) {
	srv := redistest.Start(t)
	for _, after := range []error{reply("LOADING another server"), &net.OpError{Op: "dial", Err: errors.New("refused")},
		redis.ErrPoolTimeout} {
		rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
		defer rdb.Close()
		rdb.AddHook(failing{after: after})
		cmd := newCmd(t.Context(), "incr", "n")
		send(t.Context(), rdb, []redis.Cmder{cmd})
		text, answered := new(adapter).ServerError(cmd.Err())
		check.ErrorIf(t, !errors.Is(cmd.Err(), after), "%v, want %v", cmd.Err(), after)
		check.ErrorIf(t, answered, "%v is taken for the server's reply %q", cmd.Err(), text)
		check.ErrorIf(t, new(adapter).Unsent(cmd.Err()), "%v is taken for a command that was not sent", cmd.Err())
	}
	check.Equal(t, "%v commands were run", srv.Must("GET", "n"), any("3"))
}

type reply string

func (e reply) Error() string { return string(e) }
func (reply) RedisError()     {}
