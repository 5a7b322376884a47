package rueidis_test

import (
	"context"
	"testing"

	r "github.com/redis/rueidis"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/redis/go-redis/v9"
	"github.com/mortise-go/mortise/rueidis"
)

func BenchmarkZZ(b *testing.B) {
	s := redistest.Start(b)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
	c1, _ := mortise.New(rueidis.New(r.ClientOption{InitAddress: []string{s.Addr()}}))
	c2, _ := mortise.New(redisgo.New(rdb))
	for n, c := range map[string]*mortise.Client{"rueidis": c1, "goredis": c2} {
		b.Run(n, func(b *testing.B) {
			b.ReportAllocs()
			ctx := context.Background()
			for b.Loop() {
				l, err := c.Lock(ctx, "x")
				if err != nil {
					b.Fatal(err)
				}
				l.Unlock(ctx)
			}
		})
		c.Close()
	}
}
