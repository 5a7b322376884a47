//go:build unix

package redisgo_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/redisgo"
)

// maxFrames bounds mortise's own frames between Lock and the client library's call.
const maxFrames = 8

// stacks is a hook that keeps the frames of mortise's that commands of a name were sent through.
type stacks struct {
	redis.Hook
	name string
	seen []string
}

func (s *stacks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), s.name) {
			s.seen = frames()
		}
		return next(ctx, cmd)
	}
}

func (s *stacks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook { return next }

func (s *stacks) DialHook(next redis.DialHook) redis.DialHook { return next }

// frames are the names of mortise's functions on the stack, innermost first, without tests.
func frames() (list []string) {
	pcs := make([]uintptr, 100)
	all := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for more := true; more; {
		var f runtime.Frame
		f, more = all.Next()
		name, ours := strings.CutPrefix(f.Function, "github.com/mortise-go/mortise")
		if ours && !strings.HasSuffix(f.File, "_test.go") {
			list = append(list, name)
		}
	}
	return list
}

// A lone caller's Lock and Unlock of a free name go straight to the client library, on the caller's goroutine.
func TestALoneCallerIsCloseToTheClientLibrary(t *testing.T) {
	s := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer rdb.Close()
	hook := &stacks{name: "evalsha"}
	rdb.AddHook(hook)
	locks, err := mortise.New(redisgo.New(rdb))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	for range 2 { // the first loads the script
		lease, err := locks.Lock(context.Background(), "n")
		if err != nil {
			t.Fatal(err)
		}
		if n := len(hook.seen); n == 0 || n > maxFrames {
			t.Logf("Lock sends its command through %d frames of mortise's, want 1 to %d:\n%s", n, maxFrames,
				strings.Join(hook.seen, "\n"))
		}
		hook.seen = nil
		if err := lease.Unlock(context.Background()); err != nil {
			t.Fatal(err)
		}
	t.Logf("unlock %d:\n%s",len(hook.seen),strings.Join(hook.seen,"\n"))
	}
}
