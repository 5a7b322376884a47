package clienttest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/semaphore"
)

// tenure is a side of a read-write lock, or a permit, that a client has.
type tenure interface {
	Err() error
	Context() context.Context
}

// grantedKind is a kind, other than the plain lock, that a release grants.
type grantedKind struct {
	name   string
	can    string // of a spy
	topic  backend.Topic
	asks   string // the spied names of its requests
	renews string
	take   func(ctx context.Context, c *Client, opts ...Option) (has tenure, free func() error, err error)
}

func lockedAs(l *Lease, err error) (tenure, func() error, error) {
	if err != nil {
		return nil, nil, err
	}
	return l, func() error { return l.Unlock(context.Background()) }, nil
}

const sided = "Queue ReadWrite Enrolments"

var (
	grantedWrite = grantedKind{
		"write", sided, backend.Topic{Kind: backend.KindWrite, Name: "x"}, "AcquireWrite", "RenewWrites",
		func(ctx context.Context, c *Client, opts ...Option) (tenure, func() error, error) {
			return lockedAs(c.RW().Write.Lock(ctx, "x", opts...))
		},
	}
	grantedRead = grantedKind{
		"read", sided, grantedWrite.topic, "AcquireRead", "RenewReads",
		func(ctx context.Context, c *Client, opts ...Option) (tenure, func() error, error) {
			return lockedAs(c.RW().Read.Lock(ctx, "x", opts...))
		},
	}
	grantedPermit = grantedKind{
		"semaphore", "Queue Semaphores CountingSemaphores Enrolments", backend.Topic{Kind: backend.KindSemaphore, Name: "x"},
		"Permits.Acquire", "Permits.Renew",
		func(ctx context.Context, c *Client, opts ...Option) (tenure, func() error, error) {
			p, err := semaphore.New(c, "x", 1).Acquire(ctx, 1, opts...)
			if err != nil {
				return nil, nil, err
			}
			return p, func() error { return p.Release(context.Background()) }, nil
		},
	}
	grantedKinds = []grantedKind{grantedWrite, grantedRead, grantedPermit}
)

// got is what a call of take came to.
type got struct {
	tenure
	free func() error
	err  error
}

func (k grantedKind) queued(ctx context.Context, c *Client, opts ...Option) <-chan got {
	w := later(func() got {
		has, free, err := k.take(ctx, c, opts...)
		return got{has, free, err}
	})
	synctest.Wait()
	return w
}

func has(t *testing.T, w <-chan got) got {
	t.Helper()
	g := <-w
	must(t, g.err)
	return g
}

// holds has a client take all of what there is.
func (k grantedKind) holds(t *testing.T, c *Client) got {
	t.Helper()
	if k.name == "read" {
		k = grantedWrite
	}
	h, free, err := k.take(t.Context(), c)
	must(t, err)
	return got{h, free, nil}
}

// eachGrantedKindInABubble runs a test in a bubble for each kind: with a spy, whose grants are late where late is
// wanted.
func eachGrantedKindInABubble(
	t *testing.T, test func(t *testing.T, k grantedKind, b *spy, late *lateGrants, open func() *Client),
) {
	for _, k := range grantedKinds {
		t.Run(k.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				b, late := lateGrantsOf(s)
				b.can = k.can
				test(t, k, b, late, func() *Client { return open() })
			})
		})
	}
}

func TestAGrantOfEachKindNeedsNoRequestAndIsConfirmedAfterwards(t *testing.T) {
	eachGrantedKindInABubble(t, func(t *testing.T, k grantedKind, b *spy, late *lateGrants, open func() *Client) {
		late.deliver()
		holder := k.holds(t, open())
		w := k.queued(t.Context(), on(t, b))
		time.Sleep(time.Second)
		b.take(k.asks, k.renews)
		must(t, holder.free())
		g := has(t, w)
		if n := b.take(k.asks, k.renews); n != 0 {
			t.Errorf("%d requests for a grant by a message", n)
		}
		time.Sleep(60 * time.Millisecond)
		if n := b.take(k.renews); n != 1 {
			t.Errorf("%d renewals confirm it, want one", n)
		}
		time.Sleep(5 * time.Second)
		must(t, g.Err())
		must(t, g.free())
	})
}

func TestAGrantOfEachKindThatIsNotConfirmedEndsAfterItsFirstLease(t *testing.T) {
	eachGrantedKindInABubble(t, func(t *testing.T, k grantedKind, b *spy, late *lateGrants, open func() *Client) {
		late.deliver()
		holder := k.holds(t, open())
		w := k.queued(t.Context(), on(t, b))
		b.hook(k.renews, func(*call) error { return &backend.Fault{Err: errGone, Temporary: true} })
		must(t, holder.free())
		g := has(t, w)
		time.Sleep(backend.FirstLease - 20*time.Millisecond)
		must(t, g.Err())
		time.Sleep(20 * time.Millisecond)
		wants(t, g.Err(), ErrLost)
	})
}

// A message that is heard when its lease is nearly over, or over, lets nobody in: the waiter asks.
func TestAGrantOfEachKindThatIsHeardTooLateIsAskedFor(t *testing.T) {
	eachGrantedKindInABubble(t, func(t *testing.T, k grantedKind, b *spy, late *lateGrants, open func() *Client) {
		holder := k.holds(t, open())
		w := k.queued(t.Context(), on(t, b))
		time.Sleep(time.Second)
		b.take(k.asks)
		must(t, holder.free())
		time.Sleep(backend.FirstLease - 20*time.Millisecond)
		late.deliver()
		g := has(t, w)
		if n := b.take(k.asks); n != 1 {
			t.Errorf("%d requests, want one", n)
		}
		time.Sleep(5 * time.Second)
		must(t, g.Err())
		must(t, g.free())
	})
}

// A call that needs more than a first lease asks again as the same owner, and is granted.
func TestACallOfEachKindThatChoosesALongLeaseAsksForTheGrant(t *testing.T) {
	eachGrantedKindInABubble(t, func(t *testing.T, k grantedKind, b *spy, late *lateGrants, open func() *Client) {
		late.deliver()
		holder := k.holds(t, open())
		w := k.queued(t.Context(), on(t, b), WithLease(time.Minute))
		time.Sleep(time.Second)
		b.take(k.asks)
		must(t, holder.free())
		g := has(t, w)
		if n := b.take(k.asks); n != 1 {
			t.Errorf("%d requests, want one", n)
		}
		time.Sleep(50 * time.Second)
		must(t, g.Err())
		must(t, g.free())
	})
}

// The message of a grant comes after its client's own request has found the record its own, and while the next waiter
// of the client waits, or has been served: it releases nothing.
func TestALateMessageOfAGrantOfEachKindReleasesNoOwnerThatHasIt(t *testing.T) {
	eachGrantedKindInABubble(t, func(t *testing.T, k grantedKind, b *spy, late *lateGrants, open func() *Client) {
		o := open()
		holder := k.holds(t, o)
		c := on(t, b)
		first, second := k.queued(t.Context(), c), k.queued(t.Context(), c)
		time.Sleep(time.Second)
		must(t, holder.free())
		synctest.Wait()
		late.Handler().ChangedAll() // the first asks, and finds the grant
		late.Handler().Watching(k.topic)
		g := has(t, first)
		if k.name == "read" {
			x := has(t, second)
			late.deliver()
			synctest.Wait()
			must(t, x.free())
		} else {
			late.deliver()
			synctest.Wait()
		}
		n := b.take("LeaveQueue")
		time.Sleep(2 * time.Second)
		must(t, g.Err())
		other := grantedPermit
		if k.topic.Kind == backend.KindWrite {
			other = grantedWrite
		}
		x := other.queued(t.Context(), o)
		time.Sleep(100 * time.Millisecond)
		if len(x) > 0 || n > 0 {
			t.Errorf("two hold it, or it was left (%d times)", n)
		}
		must(t, g.free())
		for waiting := 2; waiting > 0; waiting-- { // in whichever order
			var next got
			if k.name == "read" {
				next, waiting = <-x, 1
			} else {
				select {
				case next = <-second:
				case next = <-x:
				}
			}
			must(t, next.err)
			must(t, next.free())
		}
	})
}

// A waiter leaves, and its grant comes: the next client has it at once.
func TestAWaiterOfEachKindThatLeavesAsItsGrantComesPassesItOn(t *testing.T) {
	eachGrantedKindInABubble(t, func(t *testing.T, k grantedKind, b *spy, late *lateGrants, open func() *Client) {
		holder := k.holds(t, open())
		ctx, leave := context.WithCancel(t.Context())
		w := k.queued(ctx, on(t, b))
		other := grantedPermit
		if k.topic.Kind == backend.KindWrite {
			other = grantedWrite
		}
		next := other.queued(t.Context(), open())
		time.Sleep(time.Second)
		must(t, holder.free())
		synctest.Wait()
		left := time.Now()
		leave()
		wants(t, (<-w).err, context.Canceled)
		must(t, has(t, next).free())
		if took := time.Since(left); took > 50*time.Millisecond {
			t.Errorf("the next has it after %v", took)
		}
		late.deliver()
		time.Sleep(5 * time.Second)
		must(t, k.holds(t, open()).free())
	})
}

// The first waiter of a client gives up, and the next wants the other side: nothing is granted to the first.
func TestAWaiterForTheOtherSideTakesTheFirstOnesPlace(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c, o := open(), open()
		holder := grantedWrite.holds(t, open())
		ctx, leave := context.WithCancel(t.Context())
		w := grantedRead.queued(ctx, c)
		second := grantedWrite.queued(t.Context(), c)
		third := grantedWrite.queued(t.Context(), o)
		leave()
		wants(t, (<-w).err, context.Canceled)
		time.Sleep(time.Second)
		must(t, holder.free())
		synctest.Wait()
		if len(third) > 0 {
			t.Error("a client that came later is served before")
		}
		must(t, has(t, second).free())
		must(t, has(t, third).free())
	})
}
