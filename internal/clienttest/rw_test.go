package clienttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/lease"
)

func TestReadersAndWritersAreRenewedForHours(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		var renewals atomic.Int64
		c := open(WithObserver(Observer{Renewed: func(Event) { renewals.Add(1) }}))
		read, write := c.RW().Read, c.RW().Write
		r1 := need(read.Lock(t.Context(), "x"))(t)
		r2 := need(read.Lock(t.Context(), "x", WithLease(time.Minute)))(t)
		w := need(write.Lock(t.Context(), "y"))(t)
		inner := need(read.Lock(w.Context(), "y"))(t)
		time.Sleep(2 * time.Minute)
		wants(t, r2.Err(), ErrLost)
		time.Sleep(time.Hour)
		must(t, errors.Join(r1.Err(), w.Err(), inner.Err()))
		synctest.Wait()
		if most, renewed := int64(3*6*62), renewals.Load(); renewed > most+3 || renewed < most-9 {
			t.Errorf("renewed %d times, want three leases every 10 s", renewed)
		}
		must(t, w.Unlock(t.Context()))
		time.Sleep(time.Hour)
		must(t, errors.Join(r1.Err(), inner.Err()))
		must(t, errors.Join(r1.Unlock(t.Context()), inner.Unlock(t.Context())))
	})
}

// Redisson's readers cut the time of readers beside them: a long lease of read is asserted again, and
// ends when it was to end all the same.
func TestALongReadLeaseIsExtendedAfterARedissonReaderShortensIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var renewed, asserted atomic.Int64
		b := spyOn(memory.New(), "ReadWrite", hooks{"RenewReads": func(c *call) error {
			asserted.Add(int64(len(c.request.([]backend.RenewRequest))))
			return c.run(c.ctx)
		}})
		other := need(b.Store.Open(new(engine.Engine).Handler()))(t).Capabilities().ReadWrite
		c := on(t, b, WithObserver(Observer{Renewed: func(Event) { renewed.Add(1) }}))
		read := c.RW().Read
		write := on(t, b).RW().Write
		start := time.Now()
		r := need(read.Lock(t.Context(), "x", WithLease(5*time.Minute)))(t)
		short := need(read.Lock(t.Context(), "y", WithLease(30*time.Second)))(t)
		for time.Since(start) < 4*time.Minute+50*time.Second {
			time.Sleep(7 * time.Second)
			cut(t, other, "x", r, 30*time.Second)
			wants(t, errorOf(write.TryLock(t.Context(), "x")), ErrNotAcquired)
			must(t, r.Err())
		}
		wants(t, short.Err(), ErrLost)
		<-r.Context().Done()
		if d := time.Since(start); d < 296999*time.Millisecond || d > 5*time.Minute {
			t.Errorf("a lease of five minutes ended after %v", d)
		}
		time.Sleep(5 * time.Minute)
		// Every 10 s, until no more is left than no cut can take away.
		if n := asserted.Load(); n < 26 || n > 29 || renewed.Load() != 0 {
			t.Errorf("asserted %d times in five minutes, renewed %d times", n, renewed.Load())
		}
	})
}

// cut leaves, as another program may, d of what l's record has left, if it is more.
func cut(t *testing.T, rw backend.ReadWriteStore, name string, l *Lease, d time.Duration) {
	t.Helper()
	rec, err := rw.InspectRW(t.Context(), name)
	if must(t, err); rec.Held && rec.Remaining <= d {
		return
	}
	owner := holdingOf(l).(*lease.Hold).Tenure.Owner
	reply, err := rw.ReleaseRead(t.Context(), backend.ReleaseRequest{Name: name, Owner: owner})
	if err != nil || !reply.Held {
		t.Fatalf("the record was gone: %v, %v", reply, err)
	}
	got, err := rw.AcquireRead(t.Context(), backend.ReadRequest{Name: name, Owner: owner, Lease: d})
	if err != nil || !got.Granted {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestAReadersMaxHoldEndsItsOwnLeaseOnly(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		read, write := c.RW().Read, c.RW().Write
		outer := need(read.Lock(t.Context(), "x"))(t)
		inner := need(read.Lock(outer.Context(), "x", WithMaxHold(time.Minute)))(t)
		time.Sleep(time.Minute - time.Second)
		must(t, errors.Join(inner.Err(), outer.Err()))
		time.Sleep(2 * time.Second)
		wants(t, inner.Err(), ErrLost)
		must(t, outer.Err())
		must(t, outer.Unlock(t.Context()))
		wants(t, inner.Unlock(t.Context()), ErrLost)
		must(t, errorOf(write.TryLock(t.Context(), "x", WithMaxHold(time.Minute))))
		time.Sleep(time.Minute + time.Second)
		must(t, errorOf(read.TryLock(t.Context(), "x")))
	})
}

func TestAWriterThatDiedWhileItWaitedKeepsReadersOutForTheWatchdogTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		read := open().RW().Read
		must(t, errorOf(read.Lock(t.Context(), "x", WithLease(time.Hour))))
		// It refreshes its claim as long as it lives.
		ctx, die := context.WithCancel(t.Context())
		write := open().RW().Write
		go write.Lock(ctx, "x")
		synctest.Wait()
		for range 20 {
			time.Sleep(17 * time.Second)
			wants(t, errorOf(read.TryLock(t.Context(), "x", WithLease(time.Hour))), ErrNotAcquired)
		}
		s.SetDown(errors.New("for its last words"))
		die()
		synctest.Wait()
		time.Sleep(time.Second)
		s.SetDown(nil)
		start := time.Now()
		must(t, errorOf(read.Lock(t.Context(), "x", WithLease(time.Hour))))
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("the next reader waited %v", d)
		}
	})
}

// Each renewal of a reader is a change that the clients of all others hear of. They must not
// answer it with changes of their own.
func TestARenewalOfReadersCausesNoRenewalOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		// The store tells all other clients of what is renewed, as Redis does with tracking.
		var handlers []backend.Handler
		tell := func(c *call) error {
			err := c.run(c.ctx)
			for _, r := range c.request.([]backend.RenewRequest) {
				for _, h := range handlers {
					if h != c.handler && r.Lease != 0 {
						h.Changed(backend.Topic{Kind: backend.KindWrite, Name: r.Name})
					}
				}
			}
			return err
		}
		b := spyOn(s, "ReadWrite", hooks{"RenewReads": tell, "RenewWrites": tell})
		b.listen = func(h backend.Handler) backend.Handler {
			handlers = append(handlers, h)
			return h
		}
		var clients []*Client
		for range 4 {
			c := on(t, b)
			defer c.Shutdown(t.Context())
			clients = append(clients, c)
			read := c.RW().Read
			l := need(read.Lock(t.Context(), "x"))(t)
			defer l.Unlock(t.Context())
		}
		time.Sleep(5 * time.Minute)
		// 4 readers renew every 10 s, and each has 3 others that ask.
		if n := b.take("RenewReads", "RenewWrites"); n < 4*29 || n > 4*31*4 {
			t.Errorf("%d renewals and questions in 5 minutes", n)
		}
		for _, c := range clients {
			if s, err := c.Inspect(t.Context(), "x"); err != nil || s.Readers != 4 {
				t.Errorf("%+v, %v", s, err)
			}
		}
	})
}

func TestReadersAndWritersLearnThatTheirRecordIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		rw := open().RW()
		read, write := rw.Read, rw.Write
		r := need(read.Lock(t.Context(), "x"))(t)
		w := need(write.Lock(t.Context(), "y"))(t)
		start := time.Now()
		s.Delete("x")
		s.Delete("y")
		<-r.Context().Done()
		<-w.Context().Done()
		wants(t, context.Cause(r.Context()), ErrLost)
		wants(t, context.Cause(w.Context()), ErrLost)
		if d := time.Since(start); d > time.Second {
			t.Errorf("after %v", d)
		}
		// A re-entry whose record is gone reports a loss.
		r = need(read.Lock(t.Context(), "z", WithLease(time.Hour)))(t)
		s.SetDown(errors.New("deaf"))
		s.Delete("z")
		s.SetDown(nil)
		wants(t, errorOf(read.Lock(r.Context(), "z")), ErrLost)
		wants(t, r.Err(), ErrLost)
	})
}

func TestABackendWithoutReadWriteLocksIsInvalid(t *testing.T) {
	c := on(t, spyOn(memory.New(), "", nil))
	read, write := c.RW().Read, c.RW().Write
	for _, l := range []Locker{read, write} {
		wants(t, errorOf(l.Lock(t.Context(), "x")), ErrInvalid)
		wants(t, errorOf(l.TryLock(t.Context(), "x")), ErrInvalid)
	}
}

func TestReadWriteLocksRefuseInvalidArguments(t *testing.T) {
	c := on(t, memory.New())
	read, write := c.RW().Read, c.RW().Write
	var none context.Context
	for _, l := range []Locker{read, write} {
		wants(t, errorOf(l.Lock(t.Context(), "")), ErrInvalidName)
		wants(t, errorOf(l.Lock(none, "x")), ErrInvalid)
		wants(t, errorOf(l.TryLock(t.Context(), "x", WithWait(time.Second))), ErrInvalid)
	}
}

func TestAWaitersRemainingIsTheLongestReaders(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		read := open().RW().Read
		must(t, errorOf(read.Lock(t.Context(), "x", WithLease(time.Hour))))
		write := open().RW().Write
		_, err := write.Lock(t.Context(), "x", WithWait(time.Minute))
		wants(t, err, ErrNotAcquired)
		var e *Error
		if !errors.As(err, &e) || e.Remaining < 58*time.Minute || e.Remaining > 59*time.Minute+time.Second {
			t.Errorf("%v", err)
		}
	})
}

// The claims of a client's writers are one: a writer that left, and had never asked, took back that of the writer
// before it.
func TestAWriterThatNeverAskedWithdrawsNoClaim(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		b := spyOn(s, "ReadWrite", nil)
		c := on(t, b)
		read := open().RW().Read
		write := c.RW().Write
		held := need(read.Lock(t.Context(), "x"))(t)
		go func() {
			if l, err := write.Lock(context.Background(), "x"); err == nil {
				l.Unlock(context.Background())
			}
		}()
		synctest.Wait()
		b.take("AcquireRead", "AcquireWrite")
		_, err := write.Lock(t.Context(), "x", WithWait(50*time.Millisecond)) // behind the first
		wants(t, err, ErrNotAcquired)
		synctest.Wait()
		if n, asked := b.take("Withdraw"), b.take("AcquireRead", "AcquireWrite"); n != 0 || asked != 0 {
			t.Errorf("%d claims taken back, %d more questions", n, asked)
		}
		must(t, held.Unlock(t.Context()))
		synctest.Wait()
		must(t, c.Close())
		wants(t, errorOf(write.Lock(t.Context(), "x")), ErrClosed)
		synctest.Wait()
		if n := b.take("Withdraw"); n != 0 {
			t.Errorf("%d claims taken back after Close", n)
		}
	})
}

// lateWriter is a client whose first request to write is lost, and arrives when late is called.
func lateWriter(t *testing.T, s *memory.Store) (c *Client, b *spy, late func()) {
	var first atomic.Pointer[call]
	b = spyOn(s, "ReadWrite Enrolments", hooks{"AcquireWrite": func(k *call) error {
		if first.CompareAndSwap(nil, k) {
			return unknownOutcome()
		}
		return k.run(k.ctx)
	}})
	return on(t, b), b, func() { _ = first.Load().run(context.Background()) }
}

// readsWithin checks that a reader gets its lock in time.
func readsWithin(t *testing.T, read Locker, most time.Duration) {
	t.Helper()
	began := time.Now()
	must(t, thenUnlock(read.Lock(t.Context(), "x", WithWait(time.Minute))))
	if waited := time.Since(began); waited > most {
		t.Errorf("a reader waited for %v, though no writer waits; want at most %v", waited, most)
	}
}

// A write request whose outcome is unknown arrives after its writer has left, or has had the lock. It leaves a claim
// for a watchdog timeout, whatever its lease.
func TestTheClaimOfALateWriteRequestIsWithdrawn(t *testing.T) {
	for what, x := range map[string]struct {
		refused bool // otherwise its second request gets the lock
		lease   time.Duration
		after   time.Duration // when it arrives
	}{
		"its writer was refused":    {true, 0, 20 * time.Second},
		"its lease was short":       {true, time.Second, 20 * time.Second},
		"its lease was long":        {true, time.Hour, 20 * time.Second},
		"its writer had the lock":   {false, 0, 20 * time.Second},
		"it arrives almost at once": {false, 0, 0},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				c, _, late := lateWriter(t, s)
				read, write := open().RW().Read, c.RW().Write
				opts := []Option{WithWait(time.Second)}
				if x.lease > 0 {
					opts = append(opts, WithLease(x.lease))
				}
				if x.refused {
					must(t, errorOf(read.Lock(t.Context(), "x")))
					wants(t, errorOf(write.Lock(t.Context(), "x", opts...)), ErrNotAcquired)
				} else {
					must(t, thenUnlock(write.Lock(t.Context(), "x", opts...)))
					must(t, errorOf(read.Lock(t.Context(), "x")))
				}
				time.Sleep(x.after)
				late()
				readsWithin(t, read, 2*time.Second)
			})
		})
	}
}

// The claims of a client's writers are one.
func TestAWaitingWriterKeepsItsClaimBesideALateWriteRequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c, b, late := lateWriter(t, s)
		read, write := open().RW().Read, c.RW().Write
		must(t, errorOf(read.Lock(t.Context(), "x")))
		wants(t, errorOf(write.Lock(t.Context(), "x", WithWait(time.Second))), ErrNotAcquired)
		ctx, leave := context.WithCancel(t.Context())
		second := later(func() error { return errorOf(write.Lock(ctx, "x")) })
		synctest.Wait()
		b.take("Withdraw")
		for range 20 {
			time.Sleep(time.Second)
			wants(t, errorOf(read.TryLock(t.Context(), "x")), ErrNotAcquired)
		}
		if n := b.take("Withdraw"); n != 0 {
			t.Errorf("the claim of a writer that waits was withdrawn %d times", n)
		}
		leave()
		wants(t, <-second, context.Canceled)
		synctest.Wait()
		late()
		readsWithin(t, read, 2*time.Second)
		time.Sleep(time.Minute)
		b.take("Withdraw")
		time.Sleep(time.Minute)
		if n := b.take("Withdraw"); n != 0 {
			t.Errorf("%d claims are withdrawn after all that may be late has ended", n)
		}
	})
}

// A late claim is being withdrawn when another writer of the client makes the same claim: it makes it again.
func TestAClaimThatIsWithdrawnWithALateOneIsMadeAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c, b, _ := lateWriter(t, s)
		read, write := open().RW().Read, c.RW().Write
		must(t, errorOf(read.Lock(t.Context(), "x")))
		wants(t, errorOf(write.Lock(t.Context(), "x", WithWait(time.Second))), ErrNotAcquired)
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		var once sync.Once
		var second <-chan error
		b.hook("Withdraw", func(k *call) error {
			once.Do(func() {
				second = later(func() error { return errorOf(write.Lock(ctx, "x")) })
				time.Sleep(100 * time.Millisecond)
				wants(t, errorOf(read.TryLock(ctx, "x")), ErrNotAcquired)
			})
			return k.run(k.ctx)
		})
		time.Sleep(2 * time.Second)
		wants(t, errorOf(read.TryLock(t.Context(), "x")), ErrNotAcquired)
		leave()
		wants(t, <-second, context.Canceled)
	})
}

// A writer whose lease was over went on keeping readers out where one that had entered under it
// lived on.
// See rule 4 of package backendtest.
func TestAWritersLeaseEndsThoughItsReaderLivesOn(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		rw := open().RW()
		read, write := rw.Read, rw.Write
		w := need(write.Lock(t.Context(), "x", WithLease(10*time.Second)))(t)
		r := need(read.Lock(w.Context(), "x"))(t)
		start := time.Now()
		fresh := open().RW().Read
		l := need(fresh.Lock(t.Context(), "x", WithWait(time.Hour)))(t)
		if d := time.Since(start); d > 11*time.Second {
			t.Errorf("the next reader waited %v", d)
		}
		wants(t, w.Err(), ErrLost)
		must(t, r.Err())
		must(t, errors.Join(l.Unlock(t.Context()), r.Unlock(t.Context())))
		wants(t, w.Unlock(t.Context()), ErrLost)
	})
}

// A writer becomes a reader, or its lease runs out, while the store is unavailable for longer than the writer's lease
// lasts. The reader's lease survives that; other readers get in once the store is back.
func TestAWriterIsReleasedAfterAnOutageThatItsReaderSurvives(t *testing.T) {
	for what, x := range map[string]struct {
		outage  time.Duration
		options []Option
		expires bool
	}{
		"unlocked":                         {outage: 15 * time.Second},
		"unlocked, the reader's is longer": {outage: 5 * time.Minute, options: []Option{WithLease(10 * time.Minute)}},
		"it expires":                       {outage: 25 * time.Second, expires: true},
		"it expires, the reader's is longer": {outage: 5 * time.Minute, options: []Option{WithLease(10 * time.Minute)},
			expires: true},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				a, b, ctx := open().RW(), open().RW(), t.Context()
				w := need(a.Write.Lock(ctx, "x", WithLease(10*time.Second)))(t)
				time.Sleep(9 * time.Second)
				r := need(a.Read.Lock(w.Context(), "x", x.options...))(t)
				s.SetDown(errGone)
				if !x.expires {
					wants(t, w.Unlock(ctx), ErrUnavailable)
				}
				time.Sleep(x.outage)
				s.SetDown(nil)
				back := time.Now()
				l := need(b.Read.Lock(ctx, "x", WithWait(time.Hour)))(t)
				if d := time.Since(back); d > 10*time.Second {
					t.Errorf("the next reader got in %v after the store was back", d)
				}
				must(t, errors.Join(r.Err(), r.Unlock(ctx), l.Unlock(ctx)))
			})
		})
	}
}

// A writer's lease of a second lets a reader in, which leaves at once. When the writer's lease has run out the lock is
// free, though the record lasts for as long as the reader's lease would.
func TestAWritersLeaseEndsThoughAReaderWasUnderIt(t *testing.T) {
	for i, o := range []Option{WithLease(time.Second), WithMaxHold(time.Second)} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			bubble(t, func(t *testing.T, _ *memory.Store, open func(...ClientOption) *Client) {
				a, b, ctx := open().RW(), open().RW(), t.Context()
				start := time.Now()
				w := need(a.Write.Lock(ctx, "x", o))(t)
				r := need(a.Read.Lock(w.Context(), "x", WithLease(10*time.Minute)))(t)
				must(t, r.Unlock(ctx))
				<-w.Context().Done()
				lost := time.Since(start)
				w2 := need(b.Write.Lock(ctx, "x"))(t)
				if took := time.Since(start); took > 3*time.Second {
					t.Errorf("the writer's lease was over after %v; the next writer got the lock after %v", lost, took)
				}
				must(t, w2.Unlock(ctx))
			})
		})
	}
}

// A writer's lease runs out while a reader that enters under it is on its way, and is granted.
func TestAWritersLeaseEndsWhileAReaderEnters(t *testing.T) {
	for _, stays := range []bool{true, false} {
		t.Run(fmt.Sprint("reader stays ", stays), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				spy := counted()
				a, b, ctx := on(t, spy).RW(), on(t, spy).RW(), t.Context()
				start := time.Now()
				w := need(a.Write.Lock(ctx, "x", WithLease(time.Second)))(t)
				spy.hook("AcquireRead", func(c *call) error {
					time.Sleep(985*time.Millisecond - time.Since(start)) // before the client gives the lease up
					err := c.run(context.Background())
					time.Sleep(100 * time.Millisecond) // the reply takes its time
					return err
				})
				under := w.Context()
				if stays {
					under = context.WithoutCancel(under)
				}
				r, err := a.Read.Lock(under, "x")
				spy.hook("AcquireRead", nil)
				fresh := need(b.Read.Lock(ctx, "x", WithWait(time.Hour)))(t)
				if took := time.Since(start); took > 3*time.Second {
					t.Errorf("the writer's lease was over after 1s; another reader was in after %v", took)
				}
				if stays != (err == nil) {
					t.Errorf("the reader: %v", err)
				}
				if r != nil {
					must(t, r.Unlock(ctx))
				}
				must(t, fresh.Unlock(ctx))
				time.Sleep(time.Second) // the reply
			})
		})
	}
}

// A grant is on its way when ForceUnlock removes the record, and another call of the same client gets the lock: the
// late grant does not end the lease of that one, but is found to be over itself.
func TestForceUnlockWhileAGrantIsOnItsWay(t *testing.T) {
	for op, lockers := range map[string]func(*Client) (late, next Locker){
		"Acquire":     func(c *Client) (late, next Locker) { return c, c },
		"AcquireRead": func(c *Client) (late, next Locker) { return c.RW().Read, c.RW().Write },
	} {
		t.Run(op, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				spy := counted()
				c, ctx := on(t, spy), t.Context()
				late, next := lockers(c)
				spy.hook(op, func(c *call) error {
					err := c.run(context.Background())
					time.Sleep(100 * time.Millisecond) // the reply takes its time
					return err
				})
				waiting := queued(ctx, late, "x")
				if ok := need(c.ForceUnlock(ctx, "x", ""))(t); !ok {
					t.Fatal("nothing is removed")
				}
				spy.hook(op, nil)
				holder := need(next.TryLock(ctx, "x"))(t)
				lost := waiting.lease(t)
				time.Sleep(time.Second)
				if lost.Err() == nil || holder.Err() != nil {
					t.Errorf("the late grant, whose record was removed: %v; the holder: %v", lost.Err(), holder.Err())
				}
				must(t, holder.Unlock(ctx))
				must(t, thenUnlock(next.TryLock(ctx, "x")))
			})
		})
	}
}
