package faults_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/quorum"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// quorumWatchdog is the watchdog timeout of Quorum's tests: a lease outlives a stall of the machine
// of two thirds of it.
const quorumWatchdog = 9 * time.Second

// fleet is five servers that share nothing.
type fleet struct {
	t       *testing.T
	s       stack
	servers []*redistest.Server
}

func newFleet(t *testing.T, s stack, opts ...redistest.Option) *fleet {
	f := &fleet{t: t, s: s}
	for range 5 {
		f.servers = append(f.servers, redistest.Start(t, opts...))
	}
	return f
}

// open is Quorum in one more process.
func (f *fleet) open(opts ...mortise.ClientOption) mortise.Locker {
	f.t.Helper()
	opts = append([]mortise.ClientOption{mortise.WithWatchdogTimeout(quorumWatchdog)}, opts...)
	var clients []*mortise.Client
	for _, srv := range f.servers {
		clients = append(clients, f.s.unproven(f.t, srv.Addr(), config{Timeout: time.Second}, opts...))
	}
	return harness.Must(quorum.New(clients...))(f.t)
}

// twoQuorums is a fleet that has settled, and Quorum in two processes.
func twoQuorums(t *testing.T, s stack) (f *fleet, a, b mortise.Locker) {
	f = newFleet(t, s)
	a, b = f.open(), f.open()
	f.settle(a, quorumWatchdog)
	return f, a, b
}

// each does something to some servers.
func (f *fleet) each(which []int, do func(*redistest.Server)) {
	for _, i := range which {
		do(f.servers[i])
	}
}

func (f *fleet) kill(which []int) { f.each(which, (*redistest.Server).Stop) }
func (f *fleet) thaw(which []int) { f.each(which, (*redistest.Server).Resume) }

// freeze stops servers in their tracks, until thaw or the end of the test.
func (f *fleet) freeze(which []int) {
	f.each(which, func(srv *redistest.Server) {
		srv.Pause()
		f.t.Cleanup(srv.Resume)
	})
}

// killSlowly kills servers, each after a while of its own.
func (f *fleet) killSlowly(which []int, while time.Duration) {
	f.each(which, func(srv *redistest.Server) {
		time.Sleep(rand.N(while))
		srv.Stop()
	})
}

// settle waits until all servers have a vote: they are new.
func (f *fleet) settle(quorum mortise.Locker, age time.Duration) {
	f.t.Helper()
	await(f.t, age+patience, "all servers have a vote", func() bool {
		if l, err := quorum.TryLock(context.Background(), "settle"); err == nil {
			l.Unlock(context.Background())
		}
		for _, srv := range f.servers {
			since, _ := srv.Must("GET", "mortise:1:since").(string)
			began, _, _ := strings.Cut(since, ":")
			ms, err := strconv.ParseInt(began, 10, 64)
			if err != nil || time.Since(time.UnixMilli(ms)) < age {
				time.Sleep(100 * time.Millisecond)
				return false
			}
		}
		return true
	})
}

// some draws n servers, and says which.
func (f *fleet) some(n int) []int {
	f.t.Helper()
	seed := rand.Uint64()
	which := rand.New(rand.NewPCG(seed, 0)).Perm(len(f.servers))[:n]
	f.t.Logf("servers %v (seed %d)", which, seed)
	return which
}

// free waits until no living server has a record of the names.
func (f *fleet) free(dead []int, names ...string) {
	f.t.Helper()
	await(f.t, patience, "no living server holds anything", func() bool {
		for i, srv := range f.servers {
			for _, name := range names {
				if !slices.Contains(dead, i) && exists(srv, name) {
					return false
				}
			}
		}
		return true
	})
}

// complete waits until all servers hold the names n times: a Lock that has a majority leaves
// the others behind, and locks them a moment later.
func (f *fleet) complete(n int, names ...string) {
	f.t.Helper()
	var since time.Time // what came late is there, too, until it is taken back
	await(f.t, quorumWatchdog+patience, "all parts are there", func() bool {
		for _, srv := range f.servers {
			for _, name := range names {
				if have, _ := holds(f.t, srv, name); have != n {
					since = time.Time{}
					return false
				}
			}
		}
		if since.IsZero() {
			since = time.Now()
		}
		return time.Since(since) > 200*time.Millisecond
	})
}

func eachRed(t *testing.T, f func(t *testing.T, s stack)) {
	t.Parallel()
	for _, s := range stacks[:2] {
		harness.Beside(t, s.name, func(t *testing.T) { f(t, s) })
	}
}

// tries is what TryLock comes to, when the machine does not stand still for as long as a store
// is waited for.
func tries(t *testing.T, quorum mortise.Locker, name string) error {
	t.Helper()
	ctx := within(t, patience)
	for {
		l, err := quorum.TryLock(ctx, name)
		if err == nil {
			unlock(t, l)
		}
		if !errors.Is(err, mortise.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
	}
}

// visits are holds of one lock, counted outside of Redis.
type visits struct {
	mu    sync.Mutex
	epoch time.Time
	all   []visit
}

// visit is one hold: from and to are within the time in which its lease said that it is held.
type visit struct {
	who      string
	from, to time.Duration
}

// stay holds l for a while, or until it is lost, and writes down for how long it was held.
func (v *visits) stay(who string, l *mortise.Lease, d time.Duration) {
	x := visit{who: who, from: time.Since(v.epoch)}
	if l.Err() != nil {
		return
	}
	x.to = x.from
	for {
		now := time.Since(v.epoch)
		if l.Err() != nil {
			break
		}
		x.to = now
		if now-x.from >= d {
			break
		}
		time.Sleep(time.Millisecond)
	}
	v.mu.Lock()
	v.all = append(v.all, x)
	v.mu.Unlock()
}

// check fails the test if two held the lock at one time.
func (v *visits) check(t *testing.T) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	slices.SortFunc(v.all, func(a, b visit) int { return cmp.Compare(a.from, b.from) })
	var last visit
	for i, x := range v.all {
		harness.ErrorIf(t, i > 0 && x.from < last.to, "two held the lock: %+v and %+v", last, x)
		if i == 0 || x.to > last.to {
			last = x
		}
	}
	t.Logf("%d holds", len(v.all))
}

// stalled tells that a Lock failed because the machine stood still for a few seconds: the three
// servers that are left must all answer. A caller for which that does not pass runs into ctx's end.
func stalled(ctx context.Context, err error) bool {
	return errors.Is(err, mortise.ErrUnavailable) && ctx.Err() == nil
}

// leave unlocks a lease that may have had three parts, one of them on a server that died just now.
func leave(ctx context.Context, t *testing.T, l *mortise.Lease) {
	err := l.Unlock(ctx)
	harness.ErrorIf(t, err != nil && !errors.Is(err, mortise.ErrUnavailable), "Unlock: %v", err)
}

func TestQuorum_AnyTwoOfFiveKilledWhileIdle(t *testing.T) {
	eachRed(t, func(t *testing.T, s stack) {
		f, a, b := twoQuorums(t, s)
		dead := f.some(2)
		f.kill(dead)
		ctx := within(t, 3*patience)
		for _, quorum := range []mortise.Locker{a, b} {
			l := lock(t, quorum, ctx, "n")
			inner := lock(t, quorum, l.Context(), "n")
			unlock(t, inner)
			unlock(t, l)
		}
		f.free(dead, "n")
	})
}

func TestQuorum_AnyTwoOfFiveKilledWhileHeld(t *testing.T) {
	eachRed(t, func(t *testing.T, s stack) {
		f, a, b := twoQuorums(t, s)
		ctx := within(t, 5*patience)
		l := lock(t, a, ctx, "n")
		inner := lock(t, a, l.Context(), "n")
		f.complete(2, "n")
		waiting := locking(b, ctx, "n")
		time.Sleep(rand.N(quorumWatchdog / 3))
		dead := f.some(2)
		f.kill(dead)
		fresh := lock(t, b, ctx, "m")
		// Well past its lease and several renewals.
		stays(t, quorumWatchdog*3/2, "what was held is held", func() bool {
			return l.Err() == nil && inner.Err() == nil && l.Context().Err() == nil && fresh.Err() == nil
		})
		select {
		case r := <-waiting:
			t.Fatalf("another got it meanwhile: %v", r.err)
		default:
		}
		check(t, tries(t, b, "n"), mortise.ErrNotAcquired)
		unlock(t, inner)
		unlock(t, l)
		unlock(t, fresh)
		got(t, patience, "the next has it", waiting)
		f.free(dead, "n", "m")
	})
}

func TestQuorum_AnyTwoOfFiveKilledWhileLocksAreUnderWay(t *testing.T) {
	eachRed(t, func(t *testing.T, s stack) {
		f := newFleet(t, s)
		quorums := []mortise.Locker{f.open(), f.open(), f.open()}
		f.settle(quorums[0], quorumWatchdog)
		v := visits{epoch: time.Now()}
		ctx := within(t, 5*patience)
		var over atomic.Bool
		var wg sync.WaitGroup
		names := []string{"n"}
		// take has a goroutine take a name again and again, and do something inside.
		take := func(quorum mortise.Locker, name string, inside func(l *mortise.Lease)) {
			wg.Go(func() {
				for first := true; first || !over.Load(); {
					l, err := quorum.Lock(ctx, name)
					if stalled(ctx, err) {
						continue
					}
					if first = false; err != nil {
						t.Errorf("Lock: %v", err)
						return
					}
					inside(l)
					leave(ctx, t, l)
				}
			})
		}
		for i, quorum := range quorums {
			own := fmt.Sprint("own", i)
			names = append(names, own)
			take(quorum, own, func(l *mortise.Lease) { harness.Checkf(t, l.Err(), "just locked") })
			take(quorum, "n", func(l *mortise.Lease) { v.stay(own, l, rand.N(5*time.Millisecond)) })
		}
		dead := f.some(2)
		f.killSlowly(dead, time.Second)
		time.Sleep(2 * time.Second) // some more with the rest
		over.Store(true)
		wg.Wait()
		v.check(t)
		f.free(dead, names...)
	})
}

func TestQuorum_AnyTwoOfFiveKilledWhileUnlocking(t *testing.T) {
	eachRed(t, func(t *testing.T, s stack) {
		f, a, _ := twoQuorums(t, s)
		ctx := within(t, 5*patience)
		var names []string
		var leases []*mortise.Lease
		for i := range 100 {
			names = append(names, fmt.Sprint("n", i))
			leases = append(leases, lock(t, a, ctx, names[i]))
		}
		f.complete(1, names...)
		var wg sync.WaitGroup
		for _, l := range leases {
			pause := rand.N(300 * time.Millisecond)
			wg.Go(func() {
				time.Sleep(pause)
				leave(ctx, t, l)
			})
		}
		dead := f.some(2)
		f.killSlowly(dead, 150*time.Millisecond)
		wg.Wait()
		f.free(dead, names...)
		unlock(t, lock(t, a, ctx, names[0]))
	})
}

// With a majority gone the lease ends in time, and Lock says what is wrong, soon.
func TestQuorum_ThreeOfFiveKilledOrFrozen(t *testing.T) {
	for how, do := range map[string]struct{ harm, heal func(*fleet, []int) }{
		"killed": {(*fleet).kill, func(f *fleet, which []int) { f.each(which, (*redistest.Server).Restart) }},
		"frozen": {(*fleet).freeze, (*fleet).thaw},
	} {
		t.Run(how, func(t *testing.T) {
			eachRed(t, func(t *testing.T, s stack) {
				f, a, b := twoQuorums(t, s)
				ctx := within(t, 5*patience)
				l := lock(t, a, ctx, "n")
				which := f.some(3)
				gone := time.Now()
				do.harm(f, which)
				for op, call := range map[string]func(context.Context, string, ...mortise.Option) (*mortise.Lease, error){
					"lock": b.Lock, "trylock": b.TryLock,
				} {
					begun := time.Now()
					_, err := call(context.Background(), "m")
					took := time.Since(begun)
					t.Logf("after %v: %v", took.Round(time.Millisecond), err)
					check(t, err, mortise.ErrUnavailable)
					harness.ErrorIf(t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled),
						"%s: the caller's context has no end: %v", op, err)
					quick(t, op, took, patience/2)
					for _, i := range which {
						says := fmt.Sprintf("store %d: ", i)
						harness.ErrorIf(t, err == nil || !strings.Contains(err.Error(), says),
							"%s: the error does not name store %d", op, i)
					}
				}
				closed(t, quorumWatchdog+patience, "the lease ended", l.Context().Done())
				told := time.Now()
				// By the clock, not by when this process got to run.
				harness.CheckIsf(t, l.Err(), mortise.ErrLost, "Err")
				t.Logf("lost after %v: %v", told.Sub(gone).Round(time.Millisecond), l.Err())
				d := told.Sub(gone)
				harness.ErrorIf(t, d > quorumWatchdog+patience/4, "the lease ended %v after the majority did", d)
				do.heal(f, which)
				m := lock(t, b, ctx, "n", mortise.WithWait(quorumWatchdog+patience))
				check(t, l.Unlock(ctx), mortise.ErrLost)
				harness.Check(t, m.Err())
				unlock(t, m)
				f.free(nil, "n", "m")
			})
		})
	}
}

// While three are away and come back empty a waiter gets the lock only after
// the holder was told.
func TestQuorum_TheHolderIsToldBeforeAnotherGetsIt(t *testing.T) {
	eachRed(t, func(t *testing.T, s stack) {
		f, a, b := twoQuorums(t, s)
		ctx := within(t, 5*patience)
		v := visits{epoch: time.Now()}
		l := lock(t, a, ctx, "n")
		var wg sync.WaitGroup
		wg.Go(func() { v.stay("a", l, 6*patience) })
		wg.Go(func() {
			for ctx.Err() == nil {
				m, err := b.TryLock(ctx, "n")
				if err == nil {
					v.stay("b", m, time.Second)
					m.Unlock(ctx)
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
			t.Error("it was not granted any more")
		})
		which := f.some(3)
		for _, i := range which {
			time.Sleep(rand.N(time.Second))
			f.servers[i].Restart()
		}
		// On a slow machine the first may be healed, and count, before the last is restarted.
		for again := time.After(quorumWatchdog); l.Err() == nil && ctx.Err() == nil; {
			select {
			case <-l.Context().Done():
			case <-again:
				f.each(which, (*redistest.Server).Restart)
				again = time.After(quorumWatchdog)
			}
		}
		wg.Wait()
		v.check(t)
		harness.ErrorIf(t, len(v.all) != 2, "%d holds, want 2", len(v.all))
	})
}

func TestQuorum_RestartedEmptyIsHealedWithinARenewal(t *testing.T) {
	eachRed(t, func(t *testing.T, s stack) {
		f, a, _ := twoQuorums(t, s)
		ctx := within(t, 5*patience)
		l := lock(t, a, ctx, "n")
		inner := lock(t, a, l.Context(), "n")
		for _, i := range f.some(2) {
			f.complete(2, "n")
			f.servers[i].Restart()
			begun := time.Now()
			eventually(t, "both holds are back", func() bool {
				n, _ := holds(t, f.servers[i], "n")
				return n == 2
			})
			d := time.Since(begun)
			t.Logf("server %d is healed after %v", i, d.Round(time.Millisecond))
			quick(t, "to heal it", d, quorumWatchdog/3+patience/4)
			if l.Err() != nil || inner.Err() != nil {
				t.Fatalf("%v, %v", l.Err(), inner.Err())
			}
		}
		stays(t, quorumWatchdog, "it is held", func() bool { return l.Err() == nil && inner.Err() == nil })
		unlock(t, inner)
		unlock(t, l)
		f.free(nil, "n")
	})
}

func TestQuorum_TwoOfFiveFrozen(t *testing.T) {
	eachRed(t, func(t *testing.T, s stack) {
		f, a, b := twoQuorums(t, s)
		ctx := within(t, 5*patience)
		l := lock(t, a, ctx, "n")
		f.complete(1, "n")
		which := f.some(2)
		f.freeze(which)
		begun := time.Now()
		m := lock(t, b, ctx, "m")
		check(t, tries(t, b, "n"), mortise.ErrNotAcquired)
		took := time.Since(begun)
		t.Logf("a Lock and a TryLock took %v", took.Round(time.Millisecond))
		quick(t, "a Lock and a TryLock", took, patience/4)
		stays(t, quorumWatchdog*3/2, "both are held", func() bool { return l.Err() == nil && m.Err() == nil })
		begun = time.Now()
		unlock(t, m)
		quick(t, "Unlock", time.Since(begun), patience/4)
		f.thaw(which)
		eventually(t, "those that thawed are locked again", func() bool {
			return exists(f.servers[which[0]], "n") && exists(f.servers[which[1]], "n")
		})
		unlock(t, l)
		f.free(nil, "n", "m")
	})
}

// A holds 0, 1, 2 of 0 to 4; 2 forgets it: with 2, 3, 4 B would have a majority.
func forgotten(t *testing.T, s stack, age time.Duration, lease time.Duration,
	forget func(f *fleet, srv *redistest.Server), check func(f *fleet, a *mortise.Lease, b mortise.Locker)) {
	f := newFleet(t, s)
	opts := []mortise.ClientOption{mortise.WithWatchdogTimeout(lease), quorum.WithRejoinDelay(age)}
	a, b := f.open(opts...), f.open(opts...)
	ctx := within(t, 8*patience)
	if age > 0 {
		f.settle(a, age)
	}
	for _, srv := range f.servers[:3] {
		srv.Must("SAVE") // before the lock is taken
	}
	f.freeze([]int{3, 4})
	l := lock(t, a, ctx, "n", mortise.WithLease(lease)) // which heals nothing
	f.thaw([]int{3, 4})
	await(t, lease/2, "what arrived late is taken back", func() bool {
		return !exists(f.servers[3], "n") && !exists(f.servers[4], "n")
	})
	stays(t, 500*time.Millisecond, "it is", func() bool { return l.Err() == nil })
	for _, srv := range f.servers[:3] {
		harness.FatalIf(t, !exists(srv, "n"), "the first three have no record")
	}
	forget(f, f.servers[2])
	harness.FatalIf(t, exists(f.servers[2], "n"), "the server has forgotten nothing")
	check(f, l, b)
}

var forgetting = map[string]func(f *fleet, srv *redistest.Server){
	"restarted with an old snapshot": func(f *fleet, srv *redistest.Server) {
		srv.Restart()
		harness.FatalIf(f.t, !exists(srv, "mortise:1:since"), "the snapshot was not read")
	},
	"FLUSHALL": func(f *fleet, srv *redistest.Server) { srv.Must("FLUSHALL") },
}

func TestQuorum_AServerThatLostItsDataHasNoVoteUntilAllItsLeasesAreOver(t *testing.T) {
	const lease = 20 * time.Second
	for what, forget := range forgetting {
		t.Run(what, func(t *testing.T) {
			eachRed(t, func(t *testing.T, s stack) {
				forgotten(t, s, lease, lease, forget, func(f *fleet, l *mortise.Lease, b mortise.Locker) {
					v := visits{epoch: time.Now()}
					var wg sync.WaitGroup
					wg.Go(func() { v.stay("a", l, time.Hour) })
					m := lock(t, b, within(t, 3*patience), "n")
					v.stay("b", m, time.Second)
					unlock(t, m)
					wg.Wait()
					v.check(t)
				})
			})
		})
	}
}

// What the rule is for: without it two get in. Only a client that hears of changes would notice.
func TestQuorum_WithoutTheRuleTwoGetIn(t *testing.T) {
	for what, forget := range forgetting {
		harness.Beside(t, what, func(t *testing.T) {
			forgotten(t, stacks[0], 0, time.Minute, func(f *fleet, srv *redistest.Server) {
				if what != "FLUSHALL" { // the snapshot has no such key, as it was not asked for
					srv.Restart()
					return
				}
				forget(f, srv)
			}, func(f *fleet, l *mortise.Lease, b mortise.Locker) {
				// Not one TryLock: its connections are new, or were broken, and a stall is a refusal.
				m, err := b.Lock(within(t, patience), "n")
				harness.FatalIf(t, err != nil, "the rule is off, and it was kept: %v", err)
				harness.Checkf(t, l.Err(), "the first was told")
				unlock(t, m)
			})
		})
	}
}

// Servers are killed, restarted empty and frozen at random, also more than two at a
// time, while clients fight for a lock: never do two hold it.
func TestQuorum_ARandomScheduleOfFailures(t *testing.T) {
	t.Parallel()
	const watchdog = 3 * time.Second
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	draw := rand.New(rand.NewPCG(seed, 1))
	f := newFleet(t, stacks[0])
	var quorums []mortise.Locker
	for i := range 4 {
		f.s = stacks[i%2]
		quorums = append(quorums, f.open(mortise.WithWatchdogTimeout(watchdog)))
	}
	f.settle(quorums[0], watchdog)
	length := 30 * time.Second
	if long {
		length = 10 * time.Minute
	}
	v := visits{epoch: time.Now()}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var wg sync.WaitGroup
	for i, quorum := range quorums {
		who := fmt.Sprint(i)
		wg.Go(func() {
			for ctx.Err() == nil {
				lock, opts := quorum.Lock, []mortise.Option{mortise.WithWait(time.Second + rand.N(5*time.Second))}
				switch rand.IntN(5) {
				case 0:
					lock, opts = quorum.TryLock, nil
				case 1:
					opts = append(opts, mortise.WithLease(watchdog))
				}
				l, err := lock(ctx, "n", opts...)
				if err != nil {
					harness.ErrorIf(t, !errors.Is(err, mortise.ErrUnavailable) && !errors.Is(err, mortise.ErrNotAcquired) &&
						ctx.Err() == nil,
						"Lock: %v", err)
					time.Sleep(rand.N(20 * time.Millisecond))
					continue
				}
				stay := rand.N(50 * time.Millisecond)
				if rand.IntN(6) == 0 {
					stay = rand.N(3 * watchdog)
				}
				v.stay(who, l, stay)
				short, cancel := context.WithTimeout(context.Background(), time.Second)
				l.Unlock(short)
				cancel()
			}
		})
	}
	back := map[int]func(){} // what brings back a server that is down
	for time.Since(v.epoch) < length {
		i := draw.IntN(5)
		srv := f.servers[i]
		switch up := back[i]; {
		case up != nil:
			up()
			delete(back, i)
		case len(back) >= 2 && draw.IntN(4) != 0:
		default:
			switch draw.IntN(3) {
			case 0:
				srv.Stop()
				back[i] = srv.Restart
			case 1:
				srv.Restart()
			case 2:
				srv.Pause()
				back[i] = srv.Resume
			}
		}
		time.Sleep(time.Duration(draw.Int64N(int64(1500 * time.Millisecond))))
	}
	for _, up := range back {
		up()
	}
	l, err := quorums[0].Lock(ctx, "m", mortise.WithWait(2*patience))
	for end := time.Now().Add(2 * patience); errors.Is(err, mortise.ErrUnavailable) && time.Now().Before(end); {
		l, err = quorums[0].Lock(ctx, "m", mortise.WithWait(2*patience))
	}
	harness.FatalIf(t, err != nil, "with all servers back: %v", err)
	unlock(t, l)
	stop()
	wg.Wait()
	v.check(t)
	harness.ErrorIf(t, len(v.all) == 0, "the lock was never granted")
	f.free(nil, "n", "m")
}
