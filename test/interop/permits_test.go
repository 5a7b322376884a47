package interop

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/semaphore"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// severalPermits: both sides take several permits at once, all or none, and release what the other took. Two that want
// all permits, one of each side, are both served: Redisson's testConcurrencyMultiPermits.
func severalPermits(p *pair) {
	ctx := context.Background()
	java := p.java1("permits", p.name)
	g := p.golang()
	declared := semaphore.New(g.Client, p.name, 2)
	both := harness.Must(declared.Acquire(ctx, 2))(g.t)
	harness.ErrorIf(p, java("permits", request{}).Number != 2, "Java does not see the limit that Go declared")
	harness.ErrorIf(p, java("acquireSeveral", request{Count: 1}).OK, "Java took 1 of none")
	if n := java("releaseSeveral", request{Permit: strings.Join(both.IDs(), ",")}).Number; n != 2 {
		p.Errorf("Java released %d of the two permits of Go", n)
	}
	harness.CheckIsf(p, both.Release(ctx), mortise.ErrLost, "Go releases what Java had released")

	s := semaphore.New(g.Client, p.name, 0)
	theirs := java("acquireSeveral", request{Count: 2, Lease: minutes.Milliseconds()})
	harness.ErrorIf(p, !theirs.OK, "Java could not take two of two")
	_, err := s.TryAcquire(ctx, 1)
	harness.CheckIsf(p, err, mortise.ErrNotAcquired, "Go took 1 of none")
	info := harness.Must(s.Inspect(ctx))(g.t)
	harness.ErrorIf(p, info.Limit != 2 || info.Out != 2 || info.Permits[0].Client != "", "Go sees %+v", info)
	g.must(s.Release(ctx, strings.Split(theirs.Text, ",")...))

	// A Go process and a Java one want both at once, twice each. Redisson's own test of it came with the repair of a
	// fault of earlier versions, in which a thread that wants several may wait for ever.
	thread, times := p.redisson.thread(p.T, "several"), 2
	if p.java.version == oldest {
		times = 0
	}
	for range times {
		ask := request{Op: "acquireSeveral", Kind: "permits", Name: p.name, Count: 2, Wait: long.Milliseconds(),
			Lease: minutes.Milliseconds()}
		call := thread.start(ask)
		mine := make(chan error, 1)
		go func() {
			permit, err := s.Acquire(ctx, 2, in(long))
			if err == nil {
				time.Sleep(500 * time.Millisecond) // as Redisson's test holds it
				err = permit.Release(ctx)
			}
			mine <- err
		}()
		got := p.redisson.java.wait(call, long)
		harness.FatalIf(p, !got.OK, "Java was not served: %+v", got)
		time.Sleep(500 * time.Millisecond)
		harness.ErrorIf(p, java("releaseSeveral", request{Permit: got.Text}).Number != 2, "Java could not release both")
		g.must(<-mine)
	}
	g.must(s.SetPermits(ctx, 5))
	harness.ErrorIf(p, java("permits", request{}).Number != 5, "Java does not see the limit that Go set")
	java("resize", request{Count: 1})
	harness.ErrorIf(p, harness.Must(s.Inspect(ctx))(g.t).Limit != 1, "Go does not see the limit that Java set")
	harness.ErrorIf(p, !harness.Must(s.Delete(ctx))(g.t), "Go deleted nothing")
	harness.ErrorIf(p, !java("set", request{Count: 1}).OK, "what Go deleted is there for Java")
	p.gone(p.name, 1)
}

// acquireAfterAddPermits is Redisson's test of that name, with an acquire of two by either side, and the other changes
// by the other side.
func acquireAfterAddPermits(p *pair) {
	ctx := context.Background()
	p.leaf("Go", "go", func(p *pair) {
		java := p.java1("semaphore", p.name)
		g := p.golang()
		two := make(chan error, 1)
		java("add", request{Count: 1})
		go func() { two <- semaphore.NewCounting(g.Client, p.name).Acquire(ctx, 2, in(long)) }()
		afterAddPermits(p.T, func() bool { return len(two) > 0 }, func(op string) { java(op, request{Count: 1}) })
		g.must(<-two)
		p.gone(p.name, 0)
	})
	p.leaf("Java", "java", func(p *pair) {
		s := semaphore.NewCounting(p.golang().Client, p.name)
		thread := p.redisson.thread(p.T, "two")
		harness.OK(p, s.AddPermits(ctx, 1))
		call := thread.start(request{Op: "acquire", Kind: "semaphore", Name: p.name, Count: 2, Wait: long.Milliseconds()})
		over := func() bool {
			select {
			case <-call.done:
				return true
			default:
				return false
			}
		}
		afterAddPermits(p.T, over, func(op string) {
			harness.OK(p, map[string]func() error{
				"acquire": func() error { return s.Acquire(ctx, 1, in(long)) },
				"release": func() error { return s.Release(ctx, 1) },
				"add":     func() error { return s.AddPermits(ctx, 1) },
			}[op]())
		})
		harness.ErrorIf(p, !p.redisson.java.wait(call, long).OK, "Java's acquire(2) was not served")
		p.gone(p.name, 0)
	})
}

// afterAddPermits goes on while an acquire of two waits for the second permit.
func afterAddPermits(t *testing.T, over func() bool, do func(op string)) {
	t.Helper()
	waits := func(d time.Duration) {
		t.Helper()
		time.Sleep(d)
		harness.FatalIf(t, over(), "acquire(2) of one permit returned")
	}
	waits(2 * time.Second)
	do("acquire")
	time.Sleep(time.Second)
	do("release")
	waits(time.Second)
	do("add")
}
