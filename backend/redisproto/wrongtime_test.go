//go:build unix

package redisproto_test

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/semaphore"
)

const clockBack = "the server's clock set back"

// damages change the times of all keys, as what they are named after does.
var damages = map[string]func(t *testing.T, srv *redistest.Server){
	"PERSIST": func(t *testing.T, srv *redistest.Server) {
		for _, key := range keysOf(t, srv) {
			do(t, srv, "PERSIST", key)
		}
	},
	"RESTORE without times": func(t *testing.T, srv *redistest.Server) {
		do(t, srv, "EVAL", `for _, key in ipairs(redis.call('keys', '*')) do
			redis.call('restore', key, 0, redis.call('dump', key), 'replace')
		end`, "0")
	},
	// A deadline is then ten minutes further away.
	clockBack: func(t *testing.T, srv *redistest.Server) {
		do(t, srv, "EVAL", `for _, key in ipairs(redis.call('keys', '*')) do
			local left = redis.call('pttl', key)
			if left > 0 then
				redis.call('pexpire', key, left + 600000)
			end
			if string.find(key, 'nest') then
				for _, owner in ipairs(redis.call('hkeys', key)) do
					local at, ends = string.match(redis.call('hget', key, owner), '(%d+):(%d+)')
					redis.call('hset', key, owner, at .. ':' .. string.format('%.0f', ends + 600000))
				end
			elseif redis.call('type', key).ok == 'zset' and string.find(key, 'timeout') then
				for _, id in ipairs(redis.call('zrange', key, 0, -1)) do
					redis.call('zincrby', key, 600000, id)
				end
			end
		end`, "0")
	},
}

func keysOf(t *testing.T, srv *redistest.Server) (keys []string) {
	for _, key := range do(t, srv, "KEYS", "*").([]any) {
		keys = append(keys, fmt.Sprint(key))
	}
	return keys
}

// A holder that lives puts the times of its record right, so that the lock frees itself once the holder is dead.
func TestARenewalPutsAWrongTimeToLiveRight(t *testing.T) {
	const watchdog = 3 * time.Second
	holds := map[string]func(ctx context.Context, c, other *mortise.Client, name string) error{
		"a lock": func(ctx context.Context, c, _ *mortise.Client, name string) error { return second(c.Lock(ctx, name)) },
		"a fair lock": func(ctx context.Context, c, _ *mortise.Client, name string) error {
			fair := c.With(mortise.Fair())
			return second(fair.Lock(ctx, name))
		},
		"a lock that was entered again": func(ctx context.Context, c, _ *mortise.Client, name string) error {
			l, err := c.Lock(ctx, name)
			if err != nil {
				return err
			}
			return second(c.Lock(l.Context(), name))
		},
		"two of LockAll": func(ctx context.Context, c, _ *mortise.Client, name string) error {
			return second(c.LockAll(ctx, []string{name, name + " m"}))
		},
		"a lock of two clients": func(ctx context.Context, c, other *mortise.Client, name string) error {
			l, err := c.Lock(ctx, name)
			if err != nil {
				return err
			}
			if ctx, err = delegation.NewContext(ctx, other, delegation.FromContext(l.Context())...); err != nil {
				return err
			}
			return second(other.Lock(ctx, name))
		},
		"a writer": func(ctx context.Context, c, _ *mortise.Client, name string) error {
			return second(c.RW().Write.Lock(ctx, name))
		},
		"two readers": func(ctx context.Context, c, other *mortise.Client, name string) error {
			return cmp.Or(second(c.RW().Read.Lock(ctx, name)), second(other.RW().Read.Lock(ctx, name)))
		},
		"a writer and a reader under it": func(ctx context.Context, c, _ *mortise.Client, name string) error {
			l, err := c.RW().Write.Lock(ctx, name)
			if err != nil {
				return err
			}
			return second(c.RW().Read.Lock(l.Context(), name))
		},
		"two permits": func(ctx context.Context, c, _ *mortise.Client, name string) error {
			return second(semaphore.New(c, name, 2).Acquire(ctx, 2))
		},
	}
	for _, adapter := range []string{"go-redis", "rueidis"} {
		for damage, spoil := range damages {
			t.Run(adapter+", "+damage, func(t *testing.T) {
				t.Parallel()
				srv := redistest.Start(t)
				client := func() *mortise.Client {
					c := check.Value(mortise.New(adapters[adapter](t, srv.Addr(), login{}),
						mortise.WithWatchdogTimeout(watchdog))).In(t)
					t.Cleanup(func() { _ = c.Shutdown(canceled()) })
					return c
				}
				c, other := client(), client()
				for name, hold := range holds {
					check.NoError(t, hold(t.Context(), c, other, name))
				}
				spoil(t, srv)
				if adapter == "go-redis" { // with tracking the holder hears of the change, and may have renewed already
					check.FatalIf(t, len(wrong(t, srv, watchdog)) < len(holds)-1, "after %s: %q", damage, wrong(t, srv, watchdog))
				}
				var rest []string
				defer func() {
					if t.Failed() {
						t.Logf("%q", rest)
					}
				}()
				eventually(t, "all times are right", func() bool {
					rest = wrong(t, srv, watchdog)
					return len(rest) == 0
				})
			})
		}
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// wrong returns the keys of holders that last for longer than the watchdog timeout, and for how long.
func wrong(t *testing.T, srv *redistest.Server, watchdog time.Duration) (keys []string) {
	now := check.Value(srv.Do("TIME")).In(t).([]any)
	seconds := check.Value(strconv.ParseInt(fmt.Sprint(now[0]), 10, 64)).In(t)
	for _, key := range keysOf(t, srv) {
		left := check.Value(srv.Do("PTTL", key)).In(t).(int64)
		most := watchdog.Milliseconds()
		switch {
		case strings.Contains(key, "next") || strings.Contains(key, "wake"):
			continue
		case strings.Contains(key, "nest"):
			most += 1000
		case strings.HasSuffix(key, ":timeout"):
			for _, x := range do(t, srv, "ZRANGE", key, "-1", "-1", "WITHSCORES").([]any)[1:] {
				at := check.Value(strconv.ParseFloat(fmt.Sprint(x), 64)).In(t)
				if int64(at) > seconds*1000+most+1000 {
					keys = append(keys, fmt.Sprintf("%s has a permit until %v", key, at))
				}
			}
			continue
		case do(t, srv, "TYPE", key) == "string" && !strings.Contains(key, "rwlock_timeout"): // a count, or a counter
			continue
		}
		if left == -1 || left > most {
			keys = append(keys, fmt.Sprintf("%s lives for %d ms", key, left))
		}
	}
	return keys
}
