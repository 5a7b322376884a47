package clienttest

import (
	"context"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	goruedis "github.com/redis/rueidis"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
)

// A server that has renamed SUBSCRIBE answers as a proxy without it. A wait without a subscription names the way to do
// without, if there is one for its kind.
func TestPollingWaitsWithoutSubscribe(t *testing.T) {
	check.Long(t)
	for what, x := range map[string]struct {
		config redistest.Option
		says   string
	}{
		"a server without SUBSCRIBE": {redistest.WithConfig(`rename-command SUBSCRIBE ""`), "lacks a command"},
		"a user without SUBSCRIBE":   {redistest.WithACL("app on >app ~* &* +@all -subscribe"), "lacks +subscribe"},
		"a user without channels":    {redistest.WithACL("app on >app ~* resetchannels +@all"), "lacks a channel"},
	} {
		server := redistest.Start(t, x.config)
		user, password := "", ""
		if strings.HasPrefix(what, "a user") {
			user, password = "app", "app"
		}
		single := goredis.NewClient(&goredis.Options{Addr: server.Addr(), Username: user, Password: password})
		defer single.Close()
		holder := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
		defer holder.Close()
		for name, b := range map[string]backend.Backend{
			"go-redis": redisgo.New(single),
			"rueidis": rueidis.New(goruedis.ClientOption{InitAddress: []string{server.Addr()}, Username: user,
				Password: password}),
		} {
			t.Run(what+", "+name, func(t *testing.T) {
				owner := check.Value(mortise.New(redisgo.New(holder))).In(t)
				defer owner.Close()
				client := check.Value(mortise.New(b)).In(t)
				held := check.Value(owner.TryLock(t.Context(), name)).In(t)
				for kind, l := range map[string]mortise.Locker{"plain": client,
					"fair": client.With(mortise.Fair())} {
					_, err := l.Lock(t.Context(), name)
					check.Is(t, kind, err, mortise.ErrUnavailable)
					check.ErrorIf(t, !strings.Contains(err.Error(), x.says) ||
						strings.Contains(err.Error(), "the option mortise.Polling(pause)") != (kind == "plain"),
						"%s: %v", kind, err)
				}
				polling := client.With(mortise.Polling(5 * time.Millisecond))
				done := make(chan error, 1)
				go func() {
					_, err := polling.Lock(context.Background(), name)
					done <- err
				}()
				check.Done(t, held.Unlock(t.Context()))
				check.Done(t, <-done)
				over, cancel := context.WithCancel(t.Context())
				cancel()
				client.Shutdown(over) // the lock ends with its lease: a user without channels cannot release it
			})
		}
	}
}
