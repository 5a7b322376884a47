package clienttest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

// Both names are busy for half a minute, for longer at a time than the lease can last beside the wait.
func TestLockAllWithAShortLeaseWaitsForBusyNames(t *testing.T) {
	for what, option := range map[string]Option{
		"WithLease":   WithLease(time.Second),
		"WithMaxHold": WithMaxHold(time.Second),
	} {
		for who, wrap := range map[string]func(*Client) Locker{
			"a client": func(c *Client) Locker { return c },
			"a Locker": func(c *Client) Locker { return wrapper{c} },
		} {
			t.Run(what+" of "+who, func(t *testing.T) {
				bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
					began := time.Now()
					busy, stop := context.WithTimeout(t.Context(), 30*time.Second)
					defer stop()
					var all sync.WaitGroup
					for _, name := range []string{"a", "b"} {
						for range 3 {
							c := open()
							all.Go(func() {
								for busy.Err() == nil {
									l, err := c.Lock(t.Context(), name)
									time.Sleep(700 * time.Millisecond)
									noError(t, thenUnlock(l, err))
								}
							})
						}
					}
					synctest.Wait()
					parts := Parts{}.And(wrap(open()), "a", "b")
					l := need(parts.Lock(t.Context(), option))(t)
					must(t, l.Err())
					t.Logf("it took %v", time.Since(began))
					must(t, l.Unlock(t.Context()))
					all.Wait()
				})
			})
		}
	}
}

// sluggish takes its time for each lock, whatever the context says.
type sluggish struct{ *Client }

func (l sluggish) TryLock(_ context.Context, name string, opts ...Option) (*Lease, error) {
	time.Sleep(1100 * time.Millisecond)
	return l.Client.TryLock(context.Background(), name, opts...)
}

func (l sluggish) Lock(_ context.Context, name string, opts ...Option) (*Lease, error) {
	time.Sleep(1100 * time.Millisecond)
	return l.Client.Lock(context.Background(), name, opts...)
}

// If the lease of a part ends while the last part is acquired, the call ends, also after it has waited.
func TestLockAllWhoseLastPartTakesLongerThanTheLeaseFails(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		held := need(open().Lock(t.Context(), "a"))(t)
		c := open()
		got := make(chan error, 1)
		go func() {
			got <- errorOf(Parts{}.And(c, "a").And(sluggish{c}, "b").Lock(t.Context(), WithLease(time.Second)))
		}()
		time.Sleep(5 * time.Second)
		must(t, held.Unlock(t.Context()))
		select {
		case err := <-got:
			wants(t, err, ErrUnavailable)
		case <-time.After(time.Minute):
			t.Error("it goes on")
			s.SetDown(errors.New("the end of the test"))
			<-got
			s.SetDown(nil)
		}
	})
}

// The more parts wait, the less is left of the lease of the first; it does not run out all the same.
func TestLockAllWithAShortLeaseKeepsManyPartsForAPartOfIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c, other := open(), open()
		names := []string{"a", "b", "c", "d", "e", "f"}
		for _, n := range names[1:] {
			l := need(other.Lock(t.Context(), n))(t)
			go func() {
				time.Sleep(time.Duration(n[0]-'a') * 150 * time.Millisecond) // each just before its wait would end
				noError(t, l.Unlock(context.Background()))
			}()
		}
		began := time.Now()
		l := need(c.LockAll(t.Context(), names, WithLease(400*time.Millisecond)))(t)
		must(t, l.Err())
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v; the last part was free after 750ms", took)
		}
		must(t, l.Unlock(t.Context()))
	})
}

// downFor has s fail for d.
func downFor(s *memory.Store, d time.Duration) {
	s.SetDown(errGone)
	time.AfterFunc(d, func() { s.SetDown(nil) })
}

// afterTheWaitForA calls LockAll for the parts "a" and b, while "a" is held for ten seconds. It calls f once LockAll
// has "a".
func afterTheWaitForA(
	t *testing.T, open func(...ClientOption) *Client, b Locker, f func(), opts ...Option,
) (*Lease, error) {
	other := open()
	holder := need(other.Lock(t.Context(), "a"))(t)
	go func() {
		time.Sleep(10 * time.Second)
		noError(t, holder.Unlock(context.Background()))
	}()
	var once sync.Once
	a := open(WithObserver(Observer{Acquired: func(e Event) {
		if e.Name == "a" {
			once.Do(f)
		}
	}}))
	return Parts{}.And(a, "a").And(b, "b").Lock(t.Context(), opts...)
}

func TestLockAllThatHasWaitedSitsOutAnOutageOfALaterPart(t *testing.T) {
	for what, of := range map[string]func(*testing.T, *Client) Locker{
		"plain":   func(_ *testing.T, c *Client) Locker { return c },
		"fair":    func(t *testing.T, c *Client) Locker { return c.With(Fair()) },
		"polling": func(t *testing.T, c *Client) Locker { return c.With(Polling(time.Second)) },
		"writer":  func(_ *testing.T, c *Client) Locker { return c.RW().Write },
	} {
		for where, same := range map[string]bool{"of the same store": true, "of another store": false} {
			t.Run(what+" "+where, func(t *testing.T) {
				bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
					if !same {
						s = memory.New()
					}
					b := of(t, on(t, s))
					began := time.Now()
					l := need(afterTheWaitForA(t, open, b, func() { downFor(s, 2*time.Second) }))(t)
					must(t, l.Err())
					if took := time.Since(began); took > 13*time.Second {
						t.Errorf("it took %v; the outage ended after 12s", took)
					}
					must(t, l.Unlock(t.Context()))
				})
			})
		}
	}
}

// An outage is sat out for the watchdog timeout, or for as long as WithWait allows.
func TestLockAllDoesNotSitOutAnOutageThatLasts(t *testing.T) {
	for what, x := range map[string]struct {
		opts []Option
		from time.Duration
	}{
		"the watchdog timeout": {nil, 10*time.Second + watchdogTimeout},
		"WithWait":             {[]Option{WithWait(15 * time.Second)}, 15 * time.Second},
		"WithWait in a round":  {[]Option{WithWait(10100 * time.Millisecond)}, 10100 * time.Millisecond},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, _ *memory.Store, open func(...ClientOption) *Client) {
				s := memory.New()
				began := time.Now()
				_, err := afterTheWaitForA(t, open, on(t, s), func() { s.SetDown(errGone) }, x.opts...)
				wants(t, err, ErrUnavailable)
				wants(t, err, errGone)
				if took := time.Since(began); took < x.from || took > x.from+2*time.Second {
					t.Errorf("it took %v, want %v", took, x.from)
				}
				synctest.Wait()
				must(t, thenUnlock(open().TryLock(t.Context(), "a")))
			})
		})
	}
}

func TestLockAllDoesNotSitOutAFailureThatStays(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memory.Store, open func(...ClientOption) *Client) {
		b := spyOn(memory.New(), "", nil)
		stays := func() { b.hook("Acquire", func(*call) error { return &backend.Fault{Err: errGone} }) }
		began := time.Now()
		wants(t, errorOf(afterTheWaitForA(t, open, on(t, b), stays)), errGone)
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// While a store is down, LockAll waits for the part there, and keeps no other part, whatever round it is in.
func TestLockAllKeepsNothingDuringAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memory.Store, open func(...ClientOption) *Client) {
		down, other := memory.New(), open()
		holder := need(other.Lock(t.Context(), "b"))(t)
		var once sync.Once
		c := open(WithObserver(Observer{Acquired: func(e Event) {
			if e.Name == "b" { // in round 2: in round 1 the call waited for "b" in vain
				once.Do(func() { downFor(down, 2*time.Second) })
			}
		}}))
		err := later(func() error {
			return thenUnlock(Parts{}.And(c, "a", "b").And(on(t, down), "c").Lock(t.Context()))
		})
		time.Sleep(10 * time.Second)
		must(t, holder.Unlock(t.Context()))
		time.Sleep(600 * time.Millisecond)
		must(t, thenUnlock(other.TryLockAll(t.Context(), []string{"a", "b"})))
		must(t, <-err)
	})
}

// As Lock, LockAll fails at once if a store is down when it is called.
func TestLockAllThatHasNotWaitedFailsAtAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		s.SetDown(errGone)
		up, down := newClient(t), open()
		for _, parts := range []Parts{Parts{}.And(up, "a").And(down, "b"), Parts{}.And(down, "b").And(up, "a")} {
			began := time.Now()
			wants(t, errorOf(parts.Lock(t.Context())), ErrUnavailable)
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("it took %v", took)
			}
		}
	})
}

func TestLockAllReturnsNoLeaseOfAClientThatWasShutDownMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newClient(t), memory.New()
		shutDown := func(c *call) error {
			a.Shutdown(ended())
			return c.run(c.ctx)
		}
		b := on(t, spyOn(s, "Batch", hooks{"Acquire": shutDown}))
		l, err := Parts{}.And(a, "a").And(b, "b").Lock(t.Context())
		wants(t, err, ErrClosed)
		if l != nil || errors.Is(err, ErrUnavailable) || errors.Is(err, context.Canceled) {
			t.Errorf("the lease is %v, the error %v", l, err)
		}
		must(t, thenUnlock(on(t, s).TryLock(t.Context(), "b")))
	})
}

func TestLockAllIsClosedWithTheClientOfAPartThatItKeeps(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		a, b := newClient(t), open()
		holder := need(open().Lock(t.Context(), "b"))(t)
		err := later(func() error { return errorOf(Parts{}.And(a, "a").And(b, "b").Lock(t.Context())) })
		time.Sleep(50 * time.Millisecond) // LockAll has "a", and waits for "b"
		a.Shutdown(ended())
		x := <-err
		wants(t, x, ErrClosed)
		if errors.Is(x, ErrUnavailable) || errors.Is(x, context.Canceled) {
			t.Error(x)
		}
		synctest.Wait() // the call has left the queue of "b"
		must(t, holder.Unlock(t.Context()))
		must(t, thenUnlock(open().TryLock(t.Context(), "b")))
	})
}

func TestShutdownWaitsForReleasesOfLockAllWhoseLeasesWereLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := on(t, spyOn(s, "Batch", hooks{"ReleaseAll": delayed(time.Second)}))
		all := need(c.LockAll(t.Context(), []string{"a", "b"}))(t)
		s.Flush()
		synctest.Wait()
		wants(t, all.Err(), ErrLost)
		began := time.Now()
		err := later(func() error { return all.Unlock(context.Background()) })
		synctest.Wait()
		must(t, c.Shutdown(t.Context()))
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("Shutdown returned after %v, and each of the two releases takes a second", took)
		}
		wants(t, <-err, ErrLost)
	})
}
