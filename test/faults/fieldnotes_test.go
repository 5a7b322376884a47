package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// deeper is a key of a context below a lease's.
type deeper struct{}

// Redisson #7272 and #2714: a renewal outlived the unlock or the interrupted
// acquire, and the key was renewed for ever with no holder. Cancelled at random
// points, 10,000 times in all, nothing is left behind and nothing is renewed.
func TestRedisson7272And2714_RenewalNeverOutlivesAnAcquireThatWasCancelled(t *testing.T) {
	total := 10_000
	if long {
		total = 100_000
	}
	each(t, func(t *testing.T, s stack) {
		const watchdog = 9 * time.Second
		const names = 40
		srv, p, c := counted(t, s, config{}, mortise.WithWatchdogTimeout(watchdog))
		var got, cancelled atomic.Int64
		begun := time.Now()
		workers((total+len(stacks)-1)/len(stacks), func(i int) {
			name := fmt.Sprint("n", rand.IntN(names))
			ctx, cancel := context.WithCancel(context.Background())
			// From before it was sent until after the reply.
			most := 2 * time.Millisecond
			if i%2 == 0 {
				most = 20 * time.Millisecond
			}
			if i%16 == 0 {
				most = 2 * time.Second
			}
			if i%32 == 0 { // some are acquired on a slow machine, too
				most = time.Hour
			}
			timer := time.AfterFunc(time.Duration(rand.Int64N(int64(most))), cancel)
			defer timer.Stop()
			l, err := c.Lock(ctx, name)
			switch {
			case errors.Is(err, context.Canceled):
				cancelled.Add(1)
			case err != nil:
				t.Error(err)
			default:
				got.Add(1)
				inner, err := c.Lock(context.WithValue(l.Context(), deeper{}, 0), name) // and re-entries
				if err == nil {
					inner.Unlock(ctx)
				}
				l.Unlock(ctx) // ctx may have ended
			}
			cancel()
		})
		t.Logf("%d cancelled and %d acquired in %v", cancelled.Load(), got.Load(), time.Since(begun))
		harness.ErrorIf(t, cancelled.Load() < 100 || got.Load() < 100, "that does not test much")
		records := []string{"EVAL", `local all = {}
			for i, k in ipairs(KEYS) do
				if redis.call('exists', k) == 1 then
					all[#all + 1] = k .. ' ' .. redis.call('hkeys', k)[1]
					all[#all + 1] = redis.call('pttl', k)
				end
			end
			return all`, fmt.Sprint(names)}
		for i := range names {
			records = append(records, fmt.Sprint("n", i))
		}
		last := map[any]time.Duration{} // by name and owner
		sent := -1                      // scripts, as of the last look
		await(t, watchdog-500*time.Millisecond, "every key was released, none had to expire", func() bool {
			// First the commands that are not waited for any more, then what they came to.
			_, kinds := machinery()
			all := srv.Must(records...).([]any)
			for i := 0; i < len(all); i += 2 {
				now := time.Duration(all[i+1].(int64)) * time.Millisecond
				if before, seen := last[all[i]]; seen && now > before {
					t.Errorf("the TTL of %v rose from %v to %v", all[i], before, now)
				}
				last[all[i]] = now
			}
			before := sent
			sent = p.Count(redistest.Named("EVALSHA"))
			marks := srv.Must("KEYS", "mortise:1:next:*:extra").([]any) // for a quarter of a second
			// No client takes entries out of queues any more.
			return len(all) == 0 && len(marks) == 0 && underWay(kinds) == 0 && sent == before
		})
		p.Reset()
		// The turns of foreign clients are remembered for a minute, and since when a lock was held until the lease ends.
		stays(t, watchdog/3+200*time.Millisecond, "nothing comes back", func() bool {
			left := slices.DeleteFunc(srv.Must("KEYS", "*").([]any), func(key any) bool {
				k := key.(string)
				return strings.HasSuffix(k, ":round") ||
					strings.HasPrefix(k, "mortise:1:held:") && srv.Must("PTTL", k).(int64) <= watchdog.Milliseconds()
			})
			for _, key := range left {
				t.Errorf("%v is there, for %v ms", key, srv.Must("PTTL", key.(string)))
			}
			return len(left) == 0
		})
		if n := p.Count(redistest.Named("EVALSHA", "EVAL")); n > 0 {
			t.Errorf("%d scripts after all was over: %.300q", n, p.Commands())
		}
	})
}

// Redisson #3194 and #3712: after a reconnect, or after the key had expired, the
// watchdog of a lock that was acquired again never ran.
func TestRedisson3194And3712_ALockThatIsAcquiredAgainAfterARestartIsRenewed(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		for _, how := range []string{"unlocked before", "held meanwhile", "expired meanwhile"} {
			harness.Beside(t, how, func(t *testing.T) {
				const watchdog = 6 * time.Second
				srv, c := served(t, s, config{}, mortise.WithWatchdogTimeout(watchdog))
				first := lock(t, c, within(t, patience), "n")
				switch how {
				case "unlocked before":
					unlock(t, first)
					srv.Restart()
				case "held meanwhile":
					srv.Restart()
					closed(t, watchdog+soon, "the first lease ended", first.Context().Done())
				case "expired meanwhile":
					srv.Stop()
					closed(t, watchdog+soon, "the first lease ended", first.Context().Done())
					srv.Restart()
				}
				if how != "unlocked before" {
					check(t, first.Err(), mortise.ErrLost)
					check(t, first.Unlock(within(t, patience)), mortise.ErrLost)
				}
				var second *mortise.Lease
				eventually(t, "it is acquired again", func() (ok bool) {
					var err error
					second, err = c.Lock(within(t, patience), "n")
					return err == nil
				})
				begun := time.Now()
				stays(t, watchdog+watchdog/2, "it is held and renewed", func() bool {
					return second.Err() == nil && pttl(srv, "n") > watchdog/4
				})
				left := pttl(srv, "n")
				harness.ErrorIf(t, left <= watchdog/4, "%v left after %v", left, time.Since(begun))
				unlock(t, second)
			})
		}
	})
}

// Redisson #5698 and #5697: under load a renewal was late by more than its lease,
// and there were two holders. Here every CPU is busy and thousands of leases are
// held: they are renewed on time, and one that is not ends before its record does.
func TestRedisson5698And5697_RenewalsKeepTheirScheduleWithEveryCPUBusy(t *testing.T) {
	m := 2000
	if long {
		m = 50_000
	}
	each(t, func(t *testing.T, s stack) {
		const watchdog = 4 * time.Second
		srv := redistest.Start(t)
		var lost, renewed atomic.Int64
		var least atomic.Int64 // what was left of a lease when its renewal was answered
		least.Store(int64(watchdog))
		deadlines := sync.Map{}
		c := s.client(t, srv.Addr(), config{}, mortise.WithWatchdogTimeout(watchdog), mortise.WithObserver(mortise.Observer{
			Lost: func(mortise.Event) { lost.Add(1) },
			Renewed: func(e mortise.Event) {
				renewed.Add(1)
				now := time.Now()
				if before, ok := deadlines.Swap(e.Name, now.Add(e.Remaining)); ok {
					left := before.(time.Time).Sub(now)
					for {
						old := least.Load()
						if int64(left) >= old || least.CompareAndSwap(old, int64(left)) {
							break
						}
					}
				}
			},
		}))
		leases := takes(t, context.Background(), c, m, named("n"))
		stop := make(chan struct{})
		var busy sync.WaitGroup
		for range 2 * runtime.GOMAXPROCS(0) {
			busy.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
						for range 1000 {
							n *= 3
						}
					}
				}
			})
		}
		idle := sync.OnceFunc(func() { close(stop); busy.Wait() })
		defer idle()
		for end := time.Now().Add(watchdog + watchdog/2); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			// First the store, then the lease: a record that is gone has no lease.
			for from := 0; from < m; from += 1000 {
				n := min(1000, m-from)
				args := []string{"EVAL", `local gone = {}
					for i, k in ipairs(KEYS) do if redis.call('exists', k) == 0 then gone[#gone + 1] = i end end
					return gone`, fmt.Sprint(n)}
				for i := range n {
					args = append(args, fmt.Sprint("n", from+i))
				}
				for _, g := range srv.Must(args...).([]any) {
					l := leases[from+int(g.(int64))-1]
					harness.FatalIf(t, l.Err() == nil, "the record of %s is gone and its lease is live", l.Name())
				}
			}
		}
		idle()
		t.Logf("%d leases: %d renewals, %d lost, at least %v left at a renewal", m, renewed.Load(), lost.Load(),
			time.Duration(least.Load()).Round(time.Millisecond))
		harness.ErrorIf(t, lost.Load() > 0, "%d leases were lost", lost.Load())
		harness.ErrorIf(t, renewed.Load() < int64(2*m), "only %d renewals of %d leases", renewed.Load(), m)
		releases(leases)
	})
}

// The same rows: a renewal that is late ends the lease before another gets the lock.
func TestRedisson5698And5697_ALateRenewalEndsTheLeaseFirst(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		const watchdog = 7500 * time.Millisecond // a third of it is how much sooner its context ends
		srv, w, c := wired(t, s, config{Timeout: patience}, mortise.WithWatchdogTimeout(watchdog))
		other := direct(t, srv.Addr())
		l := lock(t, c, within(t, patience), "n")
		f := w.arm(holdReply, 1, script("renew"))
		w.arm(holdReply, 1, script("renew"))
		ended := make(chan time.Time, 1)
		go func() { <-l.Context().Done(); ended <- time.Now() }()
		next := lock(t, other, within(t, patience), "n")
		at := time.Now()
		harness.CheckIsf(t, l.Err(), mortise.ErrLost, "another holds the lock and the lease says")
		e := <-ended
		harness.ErrorIf(t, e.After(at), "the lease ended %v after another got the lock", e.Sub(at))
		// The confirmation, when it comes, revives nothing.
		f.let()
		check(t, l.Err(), mortise.ErrLost)
		stays(t, 100*time.Millisecond, "the new holder holds", func() bool { return next.Err() == nil })
		unlock(t, next)
	})
}

// Redisson #4698 and #7254: a renewal that failed was only logged; the application
// could not react.
func TestRedisson4698And7254_ALostLeaseTellsItsHolderAndTheObserver(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		srv := redistest.Start(t)
		const watchdog = 9 * time.Second // go-redis dials five times before a renewal fails
		failed := make(chan mortise.Event, 1000)
		lost := make(chan mortise.Event, 10)
		c := s.client(t, srv.Addr(), config{Timeout: brief}, mortise.WithWatchdogTimeout(watchdog),
			mortise.WithObserver(mortise.Observer{
				RenewalFailed: func(e mortise.Event) { failed <- e },
				Lost:          func(e mortise.Event) { lost <- e },
			}))
		l := lock(t, c, within(t, patience), "n")
		srv.Stop()
		at := time.Now() // no renewal was sent later and confirmed
		// Err is right to the moment, Done as soon as the scheduler gets to it.
		held := at
		for asked := at; l.Err() == nil; asked = time.Now() {
			held = asked
			time.Sleep(time.Millisecond)
		}
		quick(t, "the end of the lease", held.Sub(at), watchdog)
		closed(t, soon, "the lease's context ended", l.Context().Done())
		cause := context.Cause(l.Context())
		check(t, cause, mortise.ErrLost)
		check(t, l.Err(), mortise.ErrLost)
		harness.ErrorIf(t, !strings.Contains(cause.Error(), `"n"`), "the cause does not name the lock: %v", cause)
		harness.ErrorIf(t, len(failed) < 1, "the observer was told of no renewal that failed")
		for i := range len(failed) { // the last may have failed as the lease ended
			if e := <-failed; e.Name != "n" || e.Owner == "" || e.Err == nil || i == 0 && e.Remaining <= 0 {
				t.Errorf("%+v", e)
			}
		}
		await(t, soon, "the observer was told", func() bool { return len(lost) == 1 })
		if e := <-lost; e.Name != "n" || e.Owner == "" || !errors.Is(e.Err, mortise.ErrLost) || e.Held <= 0 {
			t.Errorf("%+v", e)
		}
	})
}

// ... and so does a holder whose record was removed: with client-side caching at
// once, without it at the next renewal.
func TestRedisson4698And7254_AHolderLearnsThatItsRecordWasRemoved(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		for _, by := range []string{"DEL", "FLUSHALL", "RENAME"} {
			harness.Beside(t, by, func(t *testing.T) {
				const watchdog = 15 * time.Second
				srv, c := served(t, s, config{}, mortise.WithWatchdogTimeout(watchdog))
				l := lock(t, c, within(t, patience), "n")
				at := time.Now()
				switch by {
				case "DEL":
					srv.Must("DEL", "n")
				case "FLUSHALL":
					srv.Must("FLUSHALL")
				case "RENAME":
					srv.Must("RENAME", "n", "m")
				}
				closed(t, watchdog/3+soon, "the lease ended", l.Context().Done())
				took := time.Since(at)
				if s.cached {
					quick(t, "to notice it", took, watchdog/4)
				}
				check(t, l.Err(), mortise.ErrLost)
				check(t, l.Unlock(within(t, patience)), mortise.ErrLost)
			})
		}
	})
}

// Redisson #1763, #4064, #4216, #5046: subscriptions ran out or leaked. Thousands
// of waiters come and give up: one connection subscribes, and nothing stays.
func TestRedisson1763And4064And4216And5046_SubscriptionsNeitherRunOutNorLeak(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		srv := redistest.Start(t)
		const n = 2000
		put(t, srv, n, named("n"), time.Hour)
		c := s.client(t, srv.Addr(), config{})
		for round := range 3 {
			ctx, cancel := context.WithCancel(context.Background())
			var all sync.WaitGroup
			for i := range n {
				all.Go(func() { harness.CheckIs(t, harness.Err(c.Lock(ctx, fmt.Sprint("n", i))), context.Canceled) })
				// In waves: all at once, on a busy machine, is longer than a call waits for its turn.
				if round == 0 && (i+1)%250 == 0 {
					eventually(t, "some more are subscribed", func() bool { return channels(srv) == i+1 })
				}
			}
			if round == 0 { // in the other rounds some leave before they are subscribed
				eventually(t, "all are subscribed", func() bool { return channels(srv) == n })
				subscribers := strings.Count(srv.Must("CLIENT", "LIST", "TYPE", "pubsub").(string), "\n")
				harness.ErrorIf(t, subscribers != 1, "%d connections subscribe", subscribers)
			} else {
				eventually(t, "some are subscribed", func() bool { return channels(srv) > n/10 })
			}
			cancel()
			all.Wait()
		}
		eventually(t, "no channel is subscribed", func() bool { return channels(srv) == 0 })
	})
}

// rueidis #1010: a command that was cancelled while it was queued in the pipeline
// ran after its clean-up.
func TestRueidis1010_AnAcquireThatIsCancelledInTheQueueLeavesNothing(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		srv, w, c := wired(t, s, config{Timeout: patience, Pool: 1})
		f := w.arm(holdRequest, 1, about("first", script("acquire")))
		first := locking(c, within(t, patience), "first", mortise.WithLease(ample))
		closed(t, soon, "the connection is stuck", f.struck)
		ctx, cancel := context.WithCancel(context.Background())
		second := locking(c, ctx, "n", mortise.WithLease(ample))
		stays(t, 50*time.Millisecond, "it is queued", func() bool { return len(second) == 0 })
		cancel()
		r := receive(t, soon, "Lock returned", second) // the library waits longer
		check(t, r.err, context.Canceled)
		f.let()
		got(t, soon, "the first has its lock", first)
		// It does not even have to be released if it was never sent; if it was, soon.
		await(t, soon, "nothing is left", func() bool { return srv.Must("DBSIZE") == int64(0) })
		stays(t, 300*time.Millisecond, "nothing comes back", func() bool { return srv.Must("DBSIZE") == int64(0) })
	})
}

// rueidis #604: under high load watchers got lost in a race: busy retries and
// missed events. A thousand goroutines on ten names: as many commands per
// acquisition as with few, and no goroutine starves.
func TestRueidis604_CommandsPerAcquisitionStayFlatAndNoGoroutineStarves(t *testing.T) {
	last := 3 * time.Second
	if long {
		last = 30 * time.Second
	}
	each(t, func(t *testing.T, s stack) {
		const names, goroutines = 10, 1000
		for _, clients := range []int{1, 2} {
			t.Run(fmt.Sprint(clients, " clients"), func(t *testing.T) {
				srv := redistest.Start(t)
				p := redistest.NewProxy(t, srv.Addr())
				cs := make([]*mortise.Client, clients)
				for i := range cs {
					cs[i] = s.client(t, p.Addr(), config{})
				}
				stop := time.Now().Add(last)
				ctx := within(t, last+patience)
				turns := make([]int, goroutines)
				inside := make([]atomic.Int32, names)
				var all sync.WaitGroup
				p.Reset()
				for i := range goroutines {
					all.Go(func() {
						c, name := cs[i%clients], i/clients%names
						for time.Now().Before(stop) {
							l, err := c.Lock(ctx, fmt.Sprint("n", name))
							if err != nil {
								t.Error(err)
								return
							}
							harness.ErrorIf(t, inside[name].Add(1) != 1, "two are inside")
							turns[i]++
							inside[name].Add(-1)
							harness.Check(t, l.Unlock(ctx))
						}
					})
				}
				all.Wait()
				total, least := 0, 1<<30
				for _, n := range turns {
					total += n
					least = min(least, n)
				}
				per := float64(p.Count(work)) / float64(total)
				t.Logf("%d acquisitions, %.2f commands each, between %d and the mean of %d a goroutine", total, per, least,
					total/goroutines)
				// One process: a release and an acquire. Two: each release wakes the
				// other process's first waiter too, which asks in vain.
				bound := 2.1 + 1.2*float64(clients-1)
				harness.ErrorIf(t, per > bound, "%.2f commands per acquisition, want at most %.2f", per, bound)
				mean := total / goroutines
				harness.ErrorIf(t, least < 1 || clients == 1 && least < mean/5,
					"one goroutine had %d turns, the mean is %d", least, mean)
			})
		}
	})
}

// kalbasit/ncps #913: unlock ran with the request's cancelled context, and the lock
// stayed until its TTL.
func TestNcps913_UnlockWithACancelledContextReleases(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		srv, c := served(t, s, config{})
		ctx, cancel := context.WithCancel(context.Background())
		l := lock(t, c, ctx, "n", mortise.WithLease(ample))
		cancel()
		begun := time.Now()
		if err := l.Unlock(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("Unlock: %v", err)
		}
		quick(t, "Unlock", time.Since(begun), soon)
		await(t, soon, "the key is gone", func() bool { return !exists(srv, "n") })

		// ... though the server does not answer for a while.
		l = lock(t, c, context.Background(), "n", mortise.WithLease(ample))
		srv.Pause()
		begun = time.Now()
		check(t, l.Unlock(ctx), context.Canceled)
		quick(t, "Unlock", time.Since(begun), soon)
		srv.Resume()
		await(t, soon, "the key is gone", func() bool { return !exists(srv, "n") })

		// Do, whose function's context was cancelled, as a request's is.
		ctx, cancel = context.WithCancel(context.Background())
		err := mortise.Do(ctx, c, "n", func(context.Context) error { cancel(); return nil }, mortise.WithLease(ample))
		harness.Checkf(t, err, "Do")
		harness.ErrorIf(t, exists(srv, "n"), "Do returned and the key is there")
	})
}
