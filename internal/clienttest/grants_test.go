package clienttest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

// waitingInABubble has a client, whose requests a spy counts, wait for the lock x of another client.
func waitingInABubble(t *testing.T, opts []Option, test func(t *testing.T, b *spy, holder *Lease, next waiter)) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		b := spyOn(s, "Queue", nil)
		c := on(t, b)
		l := need(open().Lock(t.Context(), "x"))(t)
		next := queued(t.Context(), c, "x", opts...)
		time.Sleep(time.Second)
		b.take("Acquire", "Renew")
		test(t, b, l, next)
	})
}

func TestAGrantByAMessageNeedsNoRequestAndIsConfirmedAfterwards(t *testing.T) {
	waitingInABubble(t, nil, func(t *testing.T, b *spy, holder *Lease, next waiter) {
		must(t, holder.Unlock(t.Context()))
		l := next.lease(t)
		if n := b.take("Acquire", "Renew"); n != 0 {
			t.Errorf("%d requests for a grant by a message", n)
		}
		time.Sleep(60 * time.Millisecond)
		if n := b.take("Renew"); n != 1 {
			t.Errorf("%d renewals confirm it, want one", n)
		}
		time.Sleep(5 * time.Second)
		must(t, l.Err())
		must(t, l.Unlock(t.Context()))
	})
}

func TestAGrantByAMessageThatIsNotConfirmedEndsAfterItsFirstLease(t *testing.T) {
	waitingInABubble(t, nil, func(t *testing.T, b *spy, holder *Lease, next waiter) {
		b.hook("Renew", func(*call) error { return &backend.Fault{Err: errGone, Temporary: true} })
		must(t, holder.Unlock(t.Context()))
		l := next.lease(t)
		time.Sleep(backend.FirstLease - 20*time.Millisecond)
		must(t, l.Err())
		time.Sleep(20 * time.Millisecond)
		wants(t, l.Err(), ErrLost)
	})
}

// heardLateInABubble has a client wait for the lock x, be granted it, and hear of the grant after by.
func heardLateInABubble(t *testing.T, by time.Duration, opt Option, test func(t *testing.T, l *Lease)) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		b, late := lateGrantsOf(s)
		holder := need(open().Lock(t.Context(), "x"))(t)
		next := queued(t.Context(), on(t, b), "x", opt)
		time.Sleep(time.Second)
		must(t, holder.Unlock(t.Context()))
		time.Sleep(by)
		synctest.Wait()
		late.deliver()
		test(t, next.lease(t))
	})
}

// The lease of a grant counts from the grant, and WithMaxHold from when the client heard of it.
func TestAGrantThatIsHeardLateIsHeldForAsLongAsWithMaxHoldAllows(t *testing.T) {
	heardLateInABubble(t, 30*time.Millisecond, WithMaxHold(500*time.Millisecond), func(t *testing.T, l *Lease) {
		time.Sleep(499 * time.Millisecond)
		must(t, l.Err())
		time.Sleep(time.Millisecond)
		if err := l.Err(); err == nil || !strings.Contains(err.Error(), "WithMaxHold") {
			t.Errorf("it ended with %v", err)
		}
	})
}

// A first lease is shorter than what these calls ask for, so they ask again as the same owner, and are granted.
func TestACallThatNeedsMoreThanAFirstLeaseAsksForTheGrant(t *testing.T) {
	waitingInABubble(t, []Option{WithLease(time.Minute)}, func(t *testing.T, b *spy, holder *Lease, next waiter) {
		must(t, holder.Unlock(t.Context()))
		l := next.lease(t)
		if n := b.take("Acquire"); n != 1 {
			t.Errorf("%d requests, want one", n)
		}
		time.Sleep(50 * time.Second)
		must(t, l.Err())
		must(t, l.Unlock(t.Context()))
	})
}

// The client of a lease that the caller chose does not renew it: of that, the message may take no more than a request.
func TestAGrantThatIsHeardLateIsNoLeaseThatTheCallerChose(t *testing.T) {
	heardLateInABubble(t, 300*time.Millisecond, WithLease(500*time.Millisecond), func(t *testing.T, l *Lease) {
		time.Sleep(450 * time.Millisecond)
		must(t, l.Err())
	})
}

// A client with a cache hears that the record has changed: by its own grant.
func TestTheChangeByAGrantNeedsNoRequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		b := spyOn(s, "Queue", nil)
		var told backend.Handler
		b.listen = func(h backend.Handler) backend.Handler { told = h; return h }
		holder := need(open().Lock(t.Context(), "x"))(t)
		next := queued(t.Context(), on(t, b), "x")
		b.take("Acquire")
		must(t, holder.Unlock(t.Context()))
		l := next.lease(t)
		told.Changed(backend.Topic{Kind: backend.KindLock, Name: "x"})
		time.Sleep(40 * time.Millisecond)
		if n := b.take("Acquire", "Renew"); n != 0 {
			t.Errorf("%d requests for a grant by a message", n)
		}
		must(t, l.Unlock(t.Context()))
	})
}

// The reply to a handoff by command is late: the message that its waiter was granted the lock has come before.
func TestTheReplyToAHandoffThatComesAfterTheGrantTakesNothingBack(t *testing.T) {
	for how, fails := range map[string]bool{"late": false, "lost": true} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				c := on(t, spyOn(s, "Queue", hooks{"Serve": func(c *call) error {
					err := c.run(context.Background())
					time.Sleep(300 * time.Millisecond)
					if fails {
						return unknownOutcome()
					}
					return err
				}}))
				o := open()
				first := need(o.Lock(t.Context(), "x"))(t)
				second := queued(t.Context(), c, "x") // c watches the lock from now on
				must(t, first.Unlock(t.Context()))
				l := second.lease(t)
				other := queued(t.Context(), o, "x")
				next := queued(t.Context(), c, "x")
				time.Sleep(300 * time.Millisecond) // the budget for local handoffs is over
				synctest.Wait()
				released := make(chan error, 1)
				go func() { released <- l.Unlock(t.Context()) }()
				must(t, other.lease(t).Unlock(t.Context()))
				got := next.lease(t)
				must(t, <-released)
				time.Sleep(10 * time.Second)
				must(t, got.Err())
				must(t, got.Unlock(t.Context()))
			})
		})
	}
}

// A local handoff passes an owner on. A late message of the owner's grant that comes before the waiter has it gives
// nothing back.
func TestALateMessageOfAGrantReleasesNoOwnerThatIsBeingHandedOver(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		b, late := lateGrantsOf(s)
		o := open()
		gate, calls := make(chan struct{}), 0
		c := on(t, b, WithObserver(Observer{Waiting: func(Event) {
			if calls++; calls == 2 {
				<-gate
			}
		}}))
		holder := need(o.Lock(t.Context(), "x"))(t)
		first := queued(t.Context(), c, "x")
		time.Sleep(time.Second)
		must(t, holder.Unlock(t.Context()))
		synctest.Wait()
		late.Handler().Changed(backend.Topic{Kind: backend.KindLock, Name: "x"}) // first asks, and finds the grant
		l := first.lease(t)
		second := queued(t.Context(), c, "x")
		must(t, l.Unlock(t.Context())) // to second, which the observer holds up
		late.deliver()
		synctest.Wait()
		third := queued(t.Context(), o, "x")
		close(gate)
		got := second.lease(t)
		synctest.Wait()
		if len(third) > 0 && got.Err() == nil {
			t.Error("two clients hold the lock")
		}
		must(t, got.Unlock(t.Context()))
		must(t, third.lease(t).Unlock(t.Context()))
	})
}

// lateGrants keeps messages of grants back until deliver.
type lateGrants struct {
	backend.QueueHandler
	mu        sync.Mutex // guards kept and delivered
	kept      []func()
	delivered bool
}

// lateGrantsOf is a store for one client, which hears of its grants late.
func lateGrantsOf(s *memory.Store) (*spy, *lateGrants) {
	b, late := spyOn(s, "Queue", nil), new(lateGrants)
	b.listen = func(h backend.Handler) backend.Handler { late.QueueHandler = h.(backend.QueueHandler); return late }
	return b, late
}

func (h *lateGrants) Handler() backend.Handler { return h.QueueHandler.(backend.Handler) }

func (h *lateGrants) Watching(t backend.Topic) { h.Handler().Watching(t) }
func (h *lateGrants) Released(t backend.Topic) { h.Handler().Released(t) }
func (h *lateGrants) Changed(t backend.Topic)  { h.Handler().Changed(t) }
func (h *lateGrants) ChangedAll()              { h.Handler().ChangedAll() }

func (h *lateGrants) Granted(t backend.Topic, g backend.Grant) {
	h.mu.Lock()
	if !h.delivered {
		h.kept = append(h.kept, func() { h.QueueHandler.Granted(t, g) })
		h.mu.Unlock()
		return
	}
	h.mu.Unlock()
	h.QueueHandler.Granted(t, g)
}

func (h *lateGrants) deliver() {
	h.mu.Lock()
	h.delivered = true
	kept := h.kept
	h.mu.Unlock()
	for _, f := range kept {
		f()
	}
}

// A grant that lacks replicas is released. The release may come late: the owner is not asked for again.
func TestAnOwnerThatWasReleasedForLackOfReplicasIsNotAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCopied()
		s.can += " Queue"
		o, c := on(t, s.Store), on(t, s)
		holder := need(o.Lock(t.Context(), "x"))(t)
		w := queued(t.Context(), c, "x", WithReplicas(1, time.Second))
		next := queued(t.Context(), c, "x")
		time.Sleep(time.Second)
		late := make(chan struct{})
		releases := 0
		s.hook("Release", func(c *call) error {
			if releases++; releases > 1 {
				return c.run(context.Background())
			}
			go func() { <-late; _ = c.run(context.Background()) }()
			return unknownOutcome()
		})
		must(t, holder.Unlock(t.Context()))
		wants(t, (<-w).err, ErrNotReplicated)
		l := next.lease(t)
		close(late)
		synctest.Wait()
		if st := need(o.Inspect(t.Context(), "x"))(t); !st.Held || l.Err() != nil {
			t.Errorf("the lease ends by %v; the record is %+v", l.Err(), st)
		}
		must(t, l.Unlock(t.Context()))
	})
}

// arrivesLate has the next request of a waiter arrive when the channel is closed. Its sender hears that the outcome
// is unknown.
func arrivesLate(b *spy, late <-chan struct{}) {
	n := 0
	b.hook("Acquire", func(c *call) error {
		if n++; n > 1 {
			return c.run(context.Background())
		}
		go func() { <-late; _ = c.run(context.Background()) }()
		return unknownOutcome()
	})
}

// notKept fails if the lock is not free.
func notKept(t *testing.T, c *Client) {
	t.Helper()
	if st := need(c.Inspect(t.Context(), "x"))(t); st.Held {
		t.Errorf("nothing holds the lock, and %+v is left", st)
	}
}

// The entry in the queue counts beside the request that comes late.
func TestARequestThatComesAfterItsWaiterHasLeftIsCompensatedBesideItsEntry(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		b, o := spyOn(s, "Queue", nil), open()
		c := on(t, b)
		holder := need(o.Lock(t.Context(), "x"))(t)
		ctx, leave := context.WithCancel(t.Context())
		w := queued(ctx, c, "x")
		late := make(chan struct{})
		arrivesLate(b, late)
		time.Sleep(6 * time.Second) // it asks again
		synctest.Wait()
		leave()
		wants(t, (<-w).err, context.Canceled)
		time.Sleep(2 * time.Second)
		must(t, holder.Unlock(t.Context()))
		close(late)
		time.Sleep(3 * time.Second)
		notKept(t, o)
	})
}

// A tenure of the waiter's client ends while the waiter's request is on its way.
func TestAHandoffForgetsNoRequestThatIsOnItsWay(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		b, o := spyOn(s, "Queue", nil), open()
		c := on(t, b)
		holder := need(o.Lock(t.Context(), "x"))(t)
		fails, late, n := make(chan struct{}), make(chan struct{}), 0
		b.hook("Acquire", func(c *call) error {
			switch n++; n {
			case 2: // the first request that enrols
				go func() { <-late; _ = c.run(context.Background()) }()
				<-fails
				return unknownOutcome()
			}
			return c.run(context.Background())
		})
		w := queued(t.Context(), c, "x")
		must(t, holder.Unlock(t.Context()))
		l := need(c.TryLock(t.Context(), "x", WithLease(20*time.Second)))(t)
		must(t, l.Unlock(t.Context()))
		synctest.Wait()
		close(fails)
		must(t, w.lease(t).Unlock(t.Context()))
		time.Sleep(3 * time.Second)
		close(late)
		time.Sleep(3 * time.Second)
		notKept(t, o)
	})
}

// A waiter leaves as its grant comes. The reply to the release of the grant is lost: the next waiter enrols all the
// same, before the waiters that come later.
func TestAWaiterThatLeavesAsItsGrantComesHasTheNextOneAsk(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		b, late := lateGrantsOf(s)
		c, o, second, third := on(t, b), open(), open(), open()
		holder := need(o.Lock(t.Context(), "x"))(t)
		ctx := &leaving{Context: t.Context(), done: make(chan struct{}), leaves: late.deliver}
		leaver := queued(ctx, c, "x")
		next, other := queued(t.Context(), c, "x"), queued(t.Context(), second, "x")
		time.Sleep(time.Second)
		releases := 0
		b.hook("Release", func(c *call) error {
			if releases++; releases == 1 {
				return replyLost(c)
			}
			return c.run(context.Background())
		})
		must(t, holder.Unlock(t.Context()))
		synctest.Wait()
		close(ctx.done)
		wants(t, (<-leaver).err, context.Canceled)
		l := other.lease(t)
		time.Sleep(100 * time.Millisecond)
		last := queued(t.Context(), third, "x")
		must(t, l.Unlock(t.Context()))
		synctest.Wait()
		if len(next) == 0 {
			t.Error("a waiter that came later has the lock")
			must(t, last.lease(t).Unlock(t.Context()))
		}
		must(t, next.lease(t).Unlock(t.Context()))
	})
}

// leaving is a context that calls leaves when a waiter learns that the context has ended.
type leaving struct {
	context.Context
	done   chan struct{}
	leaves func()
}

func (c *leaving) Done() <-chan struct{} { return c.done }

func (c *leaving) Err() error {
	select {
	case <-c.done:
		if f := c.leaves; f != nil {
			c.leaves = nil
			f()
		}
		return context.Canceled
	default:
		return nil
	}
}

// The message of a grant comes while the waiter asks. The waiter takes the grant, whatever becomes of its request.
func TestAGrantThatComesBeforeTheAnswerToARequestIsTaken(t *testing.T) {
	for how, answer := range map[string]error{
		"refused": nil, "failed": &backend.Fault{Err: errGone}, "lost": &backend.Fault{Err: errGone, MayHaveRun: true},
	} {
		t.Run(how, func(t *testing.T) {
			waitingInABubble(t, nil, func(t *testing.T, b *spy, holder *Lease, next waiter) {
				asks, slow := make(chan struct{}), make(chan struct{})
				b.hook("Acquire", func(c *call) error {
					err := c.run(context.Background())
					close(asks)
					if <-slow; answer != nil {
						err = answer
					}
					return err
				})
				<-asks
				must(t, holder.Unlock(t.Context()))
				synctest.Wait()
				close(slow)
				l := next.lease(t)
				time.Sleep(5 * time.Second)
				must(t, l.Err())
				must(t, l.Unlock(t.Context()))
				if n := b.take("Acquire"); n != 1 {
					t.Errorf("%d requests, want one", n)
				}
			})
		})
	}
}
