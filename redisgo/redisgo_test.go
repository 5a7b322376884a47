package redisgo_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/once"
	"github.com/mortise-go/mortise/redisgo"
)

func TestClientsThatCannotWorkAreErrorsOfOpen(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	single := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer single.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	for what, c := range map[string]struct {
		client redis.UniversalClient
		text   string
		opts   []redisgo.Option
	}{
		"nil":               {nil, "nil", nil},
		"nil Client":        {(*redis.Client)(nil), "nil", nil},
		"nil ClusterClient": {(*redis.ClusterClient)(nil), "nil", nil},
		"Ring":              {ring, "granted twice", nil},
		"nil Option":        {single, "a nil Option", []redisgo.Option{nil}},
		"a mode too many":   {cluster, "WithShardedPubSub", []redisgo.Option{redisgo.WithShardedPubSub(7)}},
	} {
		if _, err := redisgo.New(c.client, c.opts...).Open(deaf{}); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A call that a Shutdown ends while the server does not answer says so: its caller's context has not ended.
func TestAShutdownIsNotTakenForTheCallersContext(t *testing.T) {
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	defer rdb.Close()
	c := check.Value(mortise.New(redisgo.New(rdb))).In(t)
	claim := once.TickRequest{ID: "1", Interval: time.Second}
	check.NoError(t, check.Err(once.TryTick(t.Context(), c, "n", claim))) // connects
	srv.Pause()
	defer srv.Resume()
	proxy.Reset()
	done := make(chan error, 1)
	go func() { done <- check.Err(once.TryTick(context.Background(), c, "n", claim)) }()
	for end := time.Now().Add(20 * time.Second); proxy.Count(redistest.Named("EVALSHA")) == 0; {
		check.FatalIf(t, time.Now().After(end), "the claim was not sent")
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = c.Shutdown(ctx)
	err := <-done
	check.ErrorIf(t, !errors.Is(err, mortise.ErrClosed) || strings.Contains(err.Error(), "caller"), "ClaimTick: %v", err)
}

type deaf struct{}

func (deaf) Watching(backend.Topic) {}
func (deaf) Released(backend.Topic) {}
func (deaf) Changed(backend.Topic)  {}
func (deaf) ChangedAll()            {}
