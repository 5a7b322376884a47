package alerts

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/middleware/telemetry"
	"github.com/mortise-go/mortise/once"
	"github.com/mortise-go/mortise/quorum"
	"github.com/mortise-go/mortise/test/internal/harness"
)

var background = context.Background()

func TestMain(m *testing.M) {
	redis.SetLogger(harness.Silent{}) // it tells each failed dial
	m.Run()
}

// onRedis is a site, a server and a client on it, after a while in which all is well.
func onRedis(t *testing.T) (*site, *redistest.Server, *mortise.Client) {
	t.Helper()
	s := newSite(t)
	server := redistest.Start(t)
	c := s.client(server.Addr(), "orders")
	s.baseline(c)
	return s, server, c
}

// goOn runs f again and again, in goroutines, until the test ends.
func (s *site) goOn(goroutines int, f func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(background)
	done := make(chan struct{})
	for range goroutines {
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				f(ctx)
			}
		}()
	}
	s.Cleanup(func() {
		cancel()
		for range goroutines {
			<-done
		}
	})
}

func TestMortiseLeaseLost(t *testing.T) {
	s, server, c := onRedis(t)
	// A lease that ends as asked is not lost.
	asked := check.Value(c.Lock(background, "asked", mortise.WithLease(time.Second))).In(t)
	<-asked.Context().Done()
	s.keep(10)
	s.silent("MortiseLeaseLost")
	lease := check.Value(c.Lock(background, "orders:42")).In(t)
	s.keep(2)
	server.Must("DEL", "orders:42")
	<-lease.Context().Done()
	check.Is(t, "the lease", lease.Err(), mortise.ErrLost)
	s.fires("MortiseLeaseLost")
}

func TestMortiseRenewalsFailing(t *testing.T) {
	s, server, c := onRedis(t)
	check.Value(c.Lock(background, "orders:42")).In(t)
	s.keep(2)
	server.Stop()
	s.fires("MortiseRenewalsFailing")
}

func TestMortiseRenewalsSlow(t *testing.T) {
	s := newSite(t)
	var slow atomic.Bool // each reply takes longer than a renewal may take, and less than a lease
	server := redistest.Start(t)
	relay := redistest.NewRelay(t, server.Addr(), func(l *redistest.Line) (up, down func()) {
		return nil, func() {
			for chunk := range l.Chunks(l.Server) {
				if slow.Load() && !l.Sleep(time.Until(chunk.Came.Add(1200*time.Millisecond))) {
					return
				}
				if _, err := l.Client.Write(chunk.Data); err != nil {
					return
				}
			}
		}
	})
	c := s.client(relay.Addr(), "orders")
	s.baseline(c)
	s.pace *= 3 // renewals are seldom, and must not be so seldom in the rules' time
	lease := check.Value(c.Lock(background, "orders:42")).In(t)
	s.until("mortise_renewal_seconds_count") // the first renewal may take two replies: the script is not loaded
	slow.Store(true)
	s.fires("MortiseRenewalsSlow")
	check.NoError(t, lease.Err())
}

func TestMortiseStoreUnavailable(t *testing.T) {
	s, server, c := onRedis(t)
	server.Stop()
	s.goOn(3, func(ctx context.Context) { c.TryLock(ctx, "orders:42") })
	s.fires("MortiseStoreUnavailable")
}

func TestMortiseQuorumDegradedAndLost(t *testing.T) {
	s := newSite(t)
	var servers []*redistest.Server
	var clients []*mortise.Client
	for i := range 3 {
		servers = append(servers, redistest.Start(t))
		clients = append(clients, s.client(servers[i].Addr(), fmt.Sprintf("store-%d", i), quorum.WithRejoinDelay(0)))
	}
	quorum := check.Value(quorum.New(clients...)).In(t)
	s.baseline(quorum)
	// Many calls, as one that fails takes some seconds, which are minutes of the rules' time.
	var orders atomic.Int64
	s.goOn(20, func(ctx context.Context) {
		if l, err := quorum.TryLock(ctx, fmt.Sprint("orders:", orders.Add(1))); err == nil {
			l.Unlock(ctx)
		}
	})
	servers[0].Stop()
	s.fires("MortiseQuorumDegraded")
	s.silent("MortiseQuorumLost")
	servers[1].Stop()
	s.fires("MortiseQuorumLost")
}

func TestMortiseWaitsLong(t *testing.T) {
	s, _, c := onRedis(t)
	// Each caller holds the lock for a while, and the others wait for all of these.
	s.goOn(8, func(ctx context.Context) {
		mortise.Do(ctx, c, "orders:42", func(ctx context.Context) error {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			return nil
		})
	})
	s.fires("MortiseWaitsLong")
}

func TestMortiseCallsRefused(t *testing.T) {
	s, _, c := onRedis(t)
	check.Value(c.Lock(background, "orders:42")).In(t)
	var refused atomic.Int64
	s.goOn(1, func(ctx context.Context) {
		if _, err := c.Lock(ctx, "orders:42", mortise.WithWait(50*time.Millisecond)); errors.Is(err, mortise.ErrNotAcquired) {
			refused.Add(1)
		}
	})
	s.fires("MortiseCallsRefused")
	check.ErrorIf(t, refused.Load() == 0, "no call was refused")
}

func TestMortiseQueueStuck(t *testing.T) {
	s, _, c := onRedis(t)
	check.Value(c.Lock(background, "orders:42")).In(t)
	s.goOn(2, func(ctx context.Context) { c.Lock(ctx, "orders:42") })
	s.fires("MortiseQueueStuck")
}

func TestMortiseQueueGrowing(t *testing.T) {
	s, _, c := onRedis(t)
	// A call comes each tenth of a second, and one is served each half.
	s.goOn(1, func(ctx context.Context) {
		go mortise.Do(ctx, c, "orders:42", func(ctx context.Context) error {
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
			return nil
		})
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	})
	s.fires("MortiseQueueGrowing")
	s.silent("MortiseQueueStuck")
}

func TestMortiseHeldTooLong(t *testing.T) {
	s, _, c := onRedis(t)
	check.Value(c.Lock(background, "orders:42")).In(t)
	s.keep(20) // five minutes
	s.silent("MortiseHeldTooLong")
	s.fires("MortiseHeldTooLong")
}

func TestMortiseTicksStopped(t *testing.T) {
	s, server, c := onRedis(t)
	claim := func(ctx context.Context) {
		once.TryTick(ctx, c, "report", once.TickRequest{ID: rand.Text(), Interval: 10 * time.Millisecond})
		select {
		case <-ctx.Done():
		case <-time.After(pace):
		}
	}
	for range 20 {
		claim(background)
		s.keep(1)
	}
	s.silent("MortiseTicksStopped")
	s.goOn(1, claim)
	// What a server leaves behind whose clock was an hour ahead for a while.
	server.Must("SET", "mortise:1:tick:{report}", fmt.Sprint(time.Now().Add(time.Hour).UnixMilli(), ":an-id"))
	s.fires("MortiseTicksStopped")
	s.silent("MortiseStoreUnavailable")
}

func TestMortiseDelegationsRefused(t *testing.T) {
	s, _, _ := onRedis(t)
	observer := check.Value(telemetry.Delegations(telemetry.WithMeterProvider(s.metrics))).In(t)
	ring := check.Value(delegation.NewRing(delegation.NewKey("k1",
		[]byte("thirty-two bytes and some more, of a test")))).In(t)
	checker := check.Value(delegation.NewChecker(ring, "stock", delegation.WithObserver(observer))).In(t)
	checker.Check(background, "forged") // the first of a kind makes the counter appear
	s.goOn(1, func(ctx context.Context) {
		checker.Check(ctx, "forged")
		select {
		case <-ctx.Done():
		case <-time.After(pace):
		}
	})
	s.fires("MortiseDelegationsRefused")
}
