package redisproto

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

type hangingAdapter struct{ fakeAdapter }

func (a *hangingAdapter) Subscribe(ctx context.Context, _ Events) (Subscription, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func tracked(t *testing.T) (*fakeAdapter, *session, *recorder) {
	a := &fakeAdapter{features: Features{Tracking: true}}
	s, r := open(t, a)
	return a, s, r
}

var try = backend.AcquireRequest{Name: "n", Owner: "o", Lease: time.Second, Unasked: true}

// The engine has a slot of its in-flight limiter for the request: the session does not sleep in it.
func TestARefusalOfACallerThatSpinsTakesNoTimeInTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s, _ := tracked(t)
		a.acquire = func(context.Context, AcquireArgs) (int64, error) { return 60_000, nil }
		rests := 0
		for range 10 {
			began := time.Now()
			for range 300 {
				reply, err := s.Acquire(t.Context(), try)
				check.FatalIf(t, err != nil || reply.Granted, "%+v %v", reply, err)
				if reply.Rest {
					rests++
				}
			}
			check.ErrorIf(t, time.Since(began) > 0, "refusals took %v", time.Since(began))
			time.Sleep(9 * time.Millisecond)
		}
		check.ErrorIf(t, rests == 0, "no caller rests")
	})
}

func TestAHeldLockIsRefusedWithoutACommandUntilItIsInvalidated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s, r := tracked(t)
		sent := 0
		a.acquire = func(context.Context, AcquireArgs) (int64, error) {
			sent++
			return 1000, nil
		}
		for range 10 {
			reply, err := s.Acquire(t.Context(), try)
			check.FatalIf(t, err != nil || reply.Granted || reply.Remaining != time.Second, "%+v %v", reply, err)
		}
		check.FatalIf(t, sent != 1, "%d sent", sent)
		uncached := try
		uncached.Unasked = false
		s.Acquire(t.Context(), uncached)
		check.FatalIf(t, sent != 2, "one that must ask did not")
		a.invalidate([]string{"n"})
		want(t, r, "changed n")
		s.Acquire(t.Context(), try)
		check.FatalIf(t, sent != 3, "an invalidation was not heeded")
		a.invalidate(nil)
		want(t, r, "changed all")
		s.Acquire(t.Context(), try)
		check.FatalIf(t, sent != 4, "an invalidation of all was not heeded")
		time.Sleep(time.Second)
		s.Acquire(t.Context(), try)
		check.FatalIf(t, sent != 5, "an entry outlived the lease")
		s.Close()
	})
}

// A plain or fenced lock that is free costs one command on the connection that tracks nothing, and one more
// where it is released; the engine verifies it later, over the other. A name that is refused twice in
// a short time is read over the other connection, so that further calls are refused without a command.
func TestPlainAndFencedLocksGoOverTheConnectionThatTracksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var plain, tracking int
		left := int64(0)
		var other fakeAdapter
		a := &fakeAdapter{features: Features{Tracking: true, Leaves: true}, untracked: &other}
		other.ints, other.int = []int64{0, 7}, 1
		a.inspected = func() { tracking++ }
		a.strings = []string{"1000", "owner", "1"}
		a.acquire = func(context.Context, AcquireArgs) (int64, error) { tracking++; return left, nil }
		other.acquire = func(context.Context, AcquireArgs) (int64, error) { plain++; return left, nil }
		s, _ := open(t, a)
		defer s.Close()
		check := func(what string, r backend.AcquireRequest, want backend.AcquireReply, onPlain, onTracking int) {
			t.Helper()
			plain, tracking = 0, 0
			got, err := s.Acquire(t.Context(), r)
			synctest.Wait()
			check.ErrorIf(t, err != nil || got != want || plain != onPlain || tracking != onTracking,
				"%s: %+v, %v, by %d and %d commands; want %+v by %d and %d", what, got, err, plain, tracking, want, onPlain,
				onTracking)
		}
		uncached, fenced := try, try
		uncached.Unasked, fenced.Fenced = false, true
		granted := backend.AcquireReply{Granted: true, VerifyAfter: verifyAfter}
		check("free", try, granted, 1, 0)
		check("free, not cached", uncached, granted, 1, 0)
		if r, err := s.Release(t.Context(), backend.ReleaseRequest{Name: "n", Owner: "o"}); err != nil || !r.Held {
			t.Errorf("released: %+v, %v; the one that tracks answers nothing", r, err)
		}
		check("fenced", fenced, backend.AcquireReply{Granted: true, Token: 7, VerifyAfter: verifyAfter}, 0, 0)
		left = 1000
		refused := backend.AcquireReply{Remaining: time.Second}
		check("held, not cached", uncached, refused, 1, 0)
		check("held", try, refused, 1, 0)
		check("held, again", try, refused, 1, 1)
		check("held, and known", try, refused, 0, 0)
		a.invalidate([]string{"n"})
		check("held by the next", try, refused, 1, 0)
		check("held by the next, again", try, refused, 1, 1)
		check("held by the next, and known", try, refused, 0, 0)
		time.Sleep(2 * time.Second)
		check("held, after a long time", try, refused, 1, 0)
		time.Sleep(2 * time.Second)
		check("held, after a long time again", try, refused, 1, 0)
	})
}

// The reply goes to the goroutine that asked, the invalidation to the connection's.
// Here the lock is freed after the refusal was decided and before it is written down.
func TestAnInvalidationThatOvertakesTheReplyIsNotForgotten(t *testing.T) {
	for what, invalidate := range map[string]func(a *fakeAdapter, s *session){
		"key": func(a *fakeAdapter, _ *session) { a.invalidate([]string{"n"}) },
		"all": func(a *fakeAdapter, _ *session) { a.invalidate(nil) },
		"own release": func(a *fakeAdapter, s *session) {
			a.int = 1
			s.Release(context.Background(), backend.ReleaseRequest{Name: "n", Owner: "p"})
		},
		"own force release": func(a *fakeAdapter, s *session) {
			a.int = 1
			s.ForceRelease(context.Background(), backend.ForceRequest{Name: "n"})
		},
		"own release, reply lost": func(a *fakeAdapter, s *session) {
			a.err = context.DeadlineExceeded
			s.Release(context.Background(), backend.ReleaseRequest{Name: "n", Owner: "p"})
		},
	} {
		t.Run(what, func(t *testing.T) {
			a, s, _ := tracked(t)
			a.acquire = func(context.Context, AcquireArgs) (int64, error) {
				invalidate(a, s)
				return 1000, nil
			}
			s.Acquire(t.Context(), try)
			sent := false
			a.acquire = func(context.Context, AcquireArgs) (int64, error) {
				sent = true
				return 0, nil
			}
			reply, err := s.Acquire(t.Context(), try)
			check.ErrorIf(t, !sent || err != nil || !reply.Granted, "refused from a picture that nothing will correct: %+v %v",
				reply, err)
		})
	}
}

func TestALockWithoutEndIsRefusedWithoutEnd(t *testing.T) {
	a, s, _ := tracked(t)
	a.int = -1
	for range 2 {
		reply, _ := s.Acquire(t.Context(), try)
		check.ErrorIf(t, reply.Granted || reply.Remaining >= 0, "%+v", reply)
		a.int = 0
	}
}

func TestTheOwnLockIsNotBelievedToBeAnothers(t *testing.T) {
	a, s, _ := tracked(t)
	a.int = 1000
	s.Acquire(t.Context(), try)
	uncached := try
	uncached.Unasked = false
	a.int = 0
	s.Acquire(t.Context(), uncached)
	reply, _ := s.Acquire(t.Context(), try)
	check.ErrorIf(t, !reply.Granted, "the same request a second time was refused")
}

// A server in miniature with one connection: commands are executed one at a time, the
// reply and then the invalidation go out in the order of execution, each handled by
// another goroutine. Once all is quiet nothing may be believed held that is free.
func TestTheCacheIsTrueOnceAllIsQuiet(t *testing.T) {
	check.Long(t)
	for round := range 100 {
		a, s, _ := tracked(t)
		var mu sync.Mutex
		held := map[string]bool{}
		known := map[string]bool{}
		pushes := make(chan string, 10_000)
		var reader sync.WaitGroup
		reader.Go(func() {
			for key := range pushes {
				a.invalidate([]string{key})
			}
		})
		name := func(i int) string { return fmt.Sprint(i % 3) }
		a.acquire = func(ctx context.Context, _ AcquireArgs) (int64, error) {
			n := ctx.Value(nameKey{}).(string)
			mu.Lock()
			free := !held[n]
			held[n] = true
			known[n] = known[n] || !free
			mu.Unlock()
			if free {
				return 0, nil
			}
			time.Sleep(time.Duration(rand.N(30)) * time.Microsecond) // the reply's way
			return 60_000, nil
		}
		var wg sync.WaitGroup
		for g := range 6 {
			wg.Go(func() {
				for i := range 20 {
					n := name(i + g + round)
					r := try
					r.Name, r.Unasked = n, i%2 == 0
					s.Acquire(context.WithValue(context.Background(), nameKey{}, n), r)
				}
			})
		}
		wg.Go(func() { // others, on other connections
			for i := range 60 {
				n := name(i)
				time.Sleep(10 * time.Microsecond)
				mu.Lock()
				if i%4 != 0 {
					delete(held, n)
				} else {
					held[n] = true
				}
				if known[n] {
					delete(known, n)
					pushes <- n
				}
				mu.Unlock()
			}
		})
		wg.Wait()
		close(pushes)
		reader.Wait()
		for i := range 3 {
			if s.seen.Held(name(i), time.Now()).Held && !held[name(i)] {
				t.Fatalf("round %d: %s is believed held and free", round, name(i))
			}
		}
		s.Close()
	}
}

type nameKey struct{}

// What cannot be sent over the other connection goes over the one that tracks; so does all for a
// second after it failed.
func TestWhileTheOtherConnectionFailsAllGoesOverTheOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away, broken := errors.New("no connection"), errors.New("broken")
		var fails error
		used := ""
		var other fakeAdapter
		a := &fakeAdapter{features: Features{Tracking: true, Leaves: true}, untracked: &other, unsent: away}
		a.acquire = func(context.Context, AcquireArgs) (int64, error) { used += "one "; return 0, nil }
		other.acquire = func(context.Context, AcquireArgs) (int64, error) { used += "other "; return 0, fails }
		s, _ := open(t, a)
		defer s.Close()
		check := func(what string, wantErr error, want string) {
			t.Helper()
			used = ""
			r, err := s.Acquire(t.Context(), try)
			check.ErrorIf(t, !errors.Is(err, wantErr) || r.Granted != (err == nil) || used != want,
				"%s: %+v, %v by %q; want %v by %q", what, r, err, used, wantErr, want)
		}
		check("all is well", nil, "other ")
		fails = away
		check("nothing is sent", nil, "other one ")
		check("just after that", nil, "one ")
		time.Sleep(time.Second)
		fails = broken
		check("perhaps it was sent", broken, "other ")
		if _, err := s.Acquire(t.Context(), try); err != nil || used != "other one " {
			t.Errorf("asked again: %v, by %q", err, used)
		}
		time.Sleep(time.Second)
		fails = serverError("ERR no")
		check("the server refuses", fails, "other ")
		fails = nil
		check("it is well again", nil, "other ")
		fenced := try
		fenced.Fenced, other.err, a.ints = true, away, []int64{0, 7}
		if r, err := s.Acquire(t.Context(), fenced); err != nil || r.Token != 7 {
			t.Errorf("a fenced lock: %+v, %v", r, err)
		}
		check("just after that", nil, "one ")
	})
}

// While the cache refuses, a PING each quarter of a second keeps its answers. A PING that is not answered does not,
// and on a cluster none is sent: a name is asked for again after a while.
func TestTheCacheTicksWhileItRefusesAndAsksOtherwise(t *testing.T) {
	hangs := make(chan struct{})
	for what, c := range map[string]struct {
		features    Features
		ping        func() error
		pings, asks int // in 9 seconds
	}{
		"answered":     {Features{Tracking: true}, func() error { return nil }, 35, 1},
		"failing":      {Features{Tracking: true}, func() error { return errors.New("no") }, 24, 12},
		"not answered": {Features{Tracking: true}, func() error { <-hangs; return nil }, 1, 12},
		"a cluster":    {Features{Tracking: true, Cluster: true}, nil, 0, 12},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hangs = make(chan struct{})
				var pings atomic.Int32
				asks := 0
				a := &fakeAdapter{features: c.features, pinged: func() error { pings.Add(1); return c.ping() }}
				s, _ := open(t, a)
				a.acquire = func(context.Context, AcquireArgs) (int64, error) { asks++; return 3_600_000, nil }
				for range 9000 {
					r := check.Value(s.Acquire(t.Context(), try)).In(t)
					check.ErrorIf(t, r.Granted, "granted")
					time.Sleep(time.Millisecond)
				}
				check.Equal(t, "%d requests", asks, c.asks)
				n := int(pings.Load())
				check.ErrorIf(t, n < c.pings*3/4 || n > c.pings, "%d pings, want %d", n, c.pings)
				time.Sleep(time.Hour)
				n = int(pings.Load())
				check.ErrorIf(t, n > c.pings, "%d pings after an hour without a call", n)
				close(hangs)
				check.NoError(t, s.Close())
			})
		})
	}
}
