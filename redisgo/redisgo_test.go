package redisgo_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise/backend"
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

type deaf struct{}

func (deaf) Watching(backend.Topic) {}
func (deaf) Released(backend.Topic) {}
func (deaf) Changed(backend.Topic)  {}
func (deaf) ChangedAll()            {}
