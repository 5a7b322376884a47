//go:build unix

package fuzz

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/semaphore"
	"github.com/mortise-go/mortise/test/internal/harness"
)

var toTheLimit = flag.Bool("limits", false,
	"a million names, 10,000 holds and 10,000 readers, in each store; else fewer, in a minute")

// limit is one of two numbers.
func limit(usual, most int) int {
	if *toTheLimit {
		return most
	}
	return usual
}

// place is a store for a test of its own: a server that no other test uses, or none.
type place struct {
	store  string
	server *redistest.Server // nil in memory
	admin  *goredis.Client
	client *mortise.Client
}

func newPlace(t *testing.T, store string) *place {
	t.Helper()
	p := &place{store: store}
	var b backend.Backend = memory.New()
	if store != inMemory {
		p.server = redistest.Start(t)
		p.admin = goredis.NewClient(&goredis.Options{Addr: p.server.Addr(), ReadTimeout: time.Minute})
		t.Cleanup(func() { p.admin.Close() })
		b = harness.At(p.server.Addr()).Backend(t, store)
	}
	p.client = harness.Must(mortise.New(b))(t)
	t.Cleanup(func() { p.client.Close() })
	return p
}

func eachStore(t *testing.T, f func(t *testing.T, p *place)) {
	for _, store := range stores {
		t.Run(store, func(t *testing.T) { f(t, newPlace(t, store)) })
	}
}

// info is a number that INFO tells.
func (p *place) info(t *testing.T, section, field string) int {
	t.Helper()
	all := harness.Must(p.admin.Info(t.Context(), section).Result())(t)
	for l := range strings.Lines(all) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(l), field+":"); ok {
			n, _ := strconv.Atoi(v)
			return n
		}
	}
	t.Fatalf("INFO %s tells no %s", section, field)
	return 0
}

// idle waits until no client listens on the server any more.
func (p *place) idle(t *testing.T) {
	t.Helper()
	if p.server == nil {
		return
	}
	var all []string
	for end := time.Now().Add(slack); ; time.Sleep(10 * time.Millisecond) {
		var err error
		if all, err = p.admin.PubSubChannels(t.Context(), "*").Result(); err != nil {
			t.Fatal(err)
		} else if len(all) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d channels are subscribed, %q for one, though nothing waits", len(all), all[0])
		}
	}
}

// heap is what the heap holds that is in use.
func heap() int {
	runtime.GC()
	runtime.GC() // pools are emptied by the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// goroutines waits for those to end that are ending, and counts.
func goroutines(most int) int {
	n := runtime.NumGoroutine()
	for end := time.Now().Add(slack / 4); n > most && time.Now().Before(end); n = runtime.NumGoroutine() {
		time.Sleep(10 * time.Millisecond)
	}
	return n
}

// crowd runs f(0) to f(n-1) on many goroutines.
func crowd(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	harness.OK(t, harness.Workers(n, 128, func(i int) error {
		if err := f(i); err != nil {
			return fmt.Errorf("name %d: %w", i, err)
		}
		return nil
	}))
}

// A million distinct names leave no memory behind, and no key but fencing tokens that were asked for, and the
// counts of semaphores, which only their users can take away.
func TestLimit_ManyNamesLeaveNothingBehind(t *testing.T) {
	eachStore(t, func(t *testing.T, p *place) {
		const warm = 3000
		names := limit(50_000, 1_000_000)
		u := newUsage(t, p)
		crowd(t, warm, func(i int) error { return u.one("warm", i) })
		p.idle(t)
		before, few := heap(), runtime.NumGoroutine()
		left := u.kept.minus(new(remains))
		began := time.Now()
		crowd(t, names, func(i int) error { return u.one("n", i) })
		took := time.Since(began)
		p.idle(t)
		after, many := heap(), goroutines(few+8)
		t.Logf("%d names in %v, %d of them waited for: heap %+d bytes from %d, goroutines %d from %d",
			names, took.Round(time.Millisecond), u.waited.Load(), after-before, before, many, few)
		kept := u.kept.minus(left)
		// What is of a kind that stays costs the store in memory what it stores: it is in this heap.
		bound := 2 << 20
		if p.server == nil {
			bound += 600 * int(kept.tokens.Load()+kept.counts.Load()+kept.once.Load())
		}
		harness.ErrorIf(t, after-before > bound,
			"%d names left %d bytes behind, want %d at most", names, after-before, bound)
		harness.ErrorIf(t, many > few+8, "%d goroutines, %d before", many, few)
		if p.server != nil {
			u.keys(t)
			t.Logf("the server tracks %d keys, and holds %d bytes",
				p.info(t, "stats", "tracking_total_keys"), p.info(t, "memory", "used_memory"))
		}
	})
}

// usage uses names, each in one way.
type usage struct {
	*place
	fair, fenced, fairFenced mortise.Locker
	read, write              mortise.Locker
	kept                     *remains
	waited                   atomic.Int64
}

// remains is what is to be found afterwards.
type remains struct{ tokens, counts, once atomic.Int64 }

func (r *remains) minus(o *remains) *remains {
	d := new(remains)
	d.tokens.Store(r.tokens.Load() - o.tokens.Load())
	d.counts.Store(r.counts.Load() - o.counts.Load())
	d.once.Store(r.once.Load() - o.once.Load())
	return d
}

func newUsage(t *testing.T, p *place) *usage {
	t.Helper()
	kind := func(k ...mortise.Option) mortise.Locker { t.Helper(); return p.client.With(k...) }
	return &usage{
		place:      p,
		kept:       new(remains),
		fair:       kind(mortise.Fair()),
		fenced:     kind(mortise.Fenced()),
		fairFenced: kind(mortise.Fair(), mortise.Fenced()),
		read:       p.client.RW().Read,
		write:      p.client.RW().Write,
	}
}

// one uses the i-th name: seven in ten as plain locks, some of each other kind, and one in a hundred is waited for.
func (u *usage) one(prefix string, i int) error {
	ctx, name := context.Background(), fmt.Sprintf("%s:%d", prefix, i)
	contended := i%100 < 10 && i/100%10 == i%100
	switch i % 50 {
	case 0, 1, 2:
		u.kept.tokens.Add(1)
		return u.lock(ctx, u.fenced, u.fenced, name, contended)
	case 3:
		u.kept.tokens.Add(1)
		return u.lock(ctx, u.fairFenced, u.fairFenced, name, contended)
	case 4, 5, 6:
		return u.lock(ctx, u.fair, u.fair, name, contended)
	case 7, 8:
		return u.lock(ctx, u.read, u.write, name, contended)
	case 9, 10:
		return u.lock(ctx, u.write, u.read, name, contended)
	case 11:
		u.kept.counts.Add(1)
		u.kept.once.Add(3)
		s := semaphore.NewCounting(u.client, name)
		_, err := s.TrySetPermits(ctx, 2)
		return errors.Join(err, s.Acquire(ctx, 1), s.Release(ctx, 1))
	case 12:
		u.kept.counts.Add(1)
		u.kept.once.Add(1)
		p := semaphore.New(u.client, name, 0)
		if _, err := p.TrySetPermits(ctx, 2); err != nil {
			return err
		}
		got, err := p.Acquire(ctx, 1)
		if err != nil {
			return err
		}
		return got.Release(ctx)
	case 13:
		u.kept.once.Add(2)
		l := latch.New(u.client, name)
		_, err := l.TrySet(ctx, 1)
		return errors.Join(err, l.CountDown(ctx), l.Wait(ctx))
	case 14:
		all, err := u.client.LockAll(ctx, []string{name, name + "b", name + "c"})
		if err != nil {
			return err
		}
		return all.Unlock(ctx)
	case 15:
		if _, err := u.client.Inspect(ctx, name); err != nil {
			return err
		}
		l, err := u.client.TryLock(ctx, name)
		if err != nil {
			return err
		}
		if _, err := u.client.ForceUnlock(ctx, name, ""); err != nil {
			return err
		}
		l.Unlock(ctx) // not held any more, as a rule
		return nil
	}
	return u.lock(ctx, u.client, u.client, name, contended)
}

// lock takes it and, contended, has another wait for it and a third give up.
func (u *usage) lock(ctx context.Context, first, second mortise.Locker, name string, contended bool) error {
	l, err := first.Lock(ctx, name)
	if err != nil {
		return err
	}
	if !contended {
		return l.Unlock(ctx)
	}
	u.waited.Add(1)
	got := make(chan error, 1)
	go func() {
		l, err := second.Lock(ctx, name)
		if err == nil {
			err = l.Unlock(ctx)
		}
		got <- err
	}()
	if l, err := second.Lock(ctx, name, mortise.WithWait(10*time.Millisecond)); err == nil {
		return errors.Join(fmt.Errorf("two hold %q", name), l.Unlock(ctx))
	}
	return errors.Join(l.Unlock(ctx), <-got)
}

// keys checks each that is left.
func (u *usage) keys(t *testing.T) {
	t.Helper()
	var tokens, counts, once int64
	var cursor uint64
	for {
		keys, next, err := u.admin.Scan(t.Context(), cursor, "*", 1000).Result()
		harness.OK(t, err)
		pipe := u.admin.Pipeline()
		ends := make([]*goredis.DurationCmd, len(keys))
		for i, k := range keys {
			ends[i] = pipe.PTTL(t.Context(), k)
		}
		if len(keys) > 0 {
			harness.Must(pipe.Exec(t.Context()))(t)
		}
		for i, k := range keys {
			end := ends[i].Val()
			_, number, _ := strings.Cut(k, ":")
			n, err := strconv.Atoi(number)
			switch {
			case end == -2: // it has gone meanwhile
			case strings.HasPrefix(k, "redisson_lock_token:{") && end < 0:
				tokens++
			case err == nil && (n%50 == 11 || n%50 == 12) && end < 0:
				counts++
			case strings.HasPrefix(k, "mortise:1:once:{") && end > 0 && end <= backend.Remembered:
				once++
			case strings.HasPrefix(k, "mortise:1:") && end > 0 && end <= 2*time.Minute:
				once++ // those that wait in turn: at most one for each name that was waited for
			default:
				t.Fatalf("%q is left behind, and ends in %v", k, end)
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	t.Logf("keys: %d tokens, %d counts, %d that expire within two minutes", tokens, counts, once)
	if tokens != u.kept.tokens.Load() || counts != u.kept.counts.Load() || once > u.kept.once.Load()+u.waited.Load() {
		t.Errorf("want %d tokens, %d counts, at most %d that expire",
			u.kept.tokens.Load(), u.kept.counts.Load(), u.kept.once.Load()+u.waited.Load())
	}
}

// 64 KiB are the longest name, for all that has one.
func TestLimit_TheLongestNames(t *testing.T) {
	eachStore(t, func(t *testing.T, p *place) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*slack)
		defer cancel()
		u := newUsage(t, p)
		for i := range 50 {
			fill := strings.Repeat("x", 65536-len("00000000:00")-1)
			harness.OK(t, u.one(fmt.Sprintf("%s%08d", fill[:len(fill)-i%2], i), i))
			harness.OK(t, u.lock(ctx, u.fair, u.fair, fmt.Sprintf("%s%08d:fair", fill[:len(fill)-4], i), true))
			harness.OK(t, u.lock(ctx, u.client, u.client, fmt.Sprintf("{%s%08d}", fill, i), true))
		}
		p.idle(t)
		harness.CheckIsf(t, harness.Err(p.client.Lock(ctx, strings.Repeat("x", 65537))), mortise.ErrInvalidName,
			"65537 bytes")
	})
}

// 10,000 holds of one lock within each other, each with the context of the one before.
func TestLimit_TenThousandHolds(t *testing.T) {
	holds := limit(2000, 10_000)
	eachStore(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		began := time.Now()
		leases := make([]*mortise.Lease, holds)
		under := ctx
		for i := range leases {
			l, err := p.client.Lock(under, "n")
			harness.FatalIf(t, err != nil, "hold %d: %v", i+1, err)
			leases[i], under = l, l.Context()
		}
		locked := time.Now()
		s, err := p.client.Inspect(ctx, "n")
		harness.ErrorIf(t, err != nil || s.Holds != holds || !s.Mine,
			"Inspect: %+v, %v; want %d holds", s, err, holds)
		for i := holds - 1; i > 0; i-- {
			harness.OKf(t, leases[i].Unlock(ctx), "Unlock %d", i+1)
		}
		if s, err = p.client.Inspect(ctx, "n"); err != nil || s.Holds != 1 || leases[0].Err() != nil {
			t.Errorf("Inspect: %+v, %v; %v; want one hold", s, err, leases[0].Err())
		}
		harness.Check(t, leases[0].Unlock(ctx))
		if s, err = p.client.Inspect(ctx, "n"); err != nil || s.Held {
			t.Errorf("Inspect: %+v, %v; want it free", s, err)
		}
		t.Logf("locked in %v, unlocked in %v",
			locked.Sub(began).Round(time.Millisecond), time.Since(locked).Round(time.Millisecond))
	})
}

// 10,000 readers of one lock, each by itself, and a writer that waits for all of them.
func TestLimit_TenThousandReaders(t *testing.T) {
	readers := limit(2000, 10_000)
	eachStore(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		read, write := p.client.RW().Read, p.client.RW().Write
		leases := make([]*mortise.Lease, readers)
		began := time.Now()
		crowd(t, readers, func(i int) (err error) { leases[i], err = read.Lock(ctx, "n"); return err })
		locked := time.Now()
		if s, err := p.client.Inspect(ctx, "n"); err != nil || s.Readers != readers {
			t.Errorf("Inspect: %+v, %v; want %d readers", s, err, readers)
		}
		type result struct {
			l   *mortise.Lease
			err error
		}
		got := make(chan result, 1)
		go func() {
			l, err := write.Lock(ctx, "n")
			got <- result{l, err}
		}()
		inspected := time.Now()
		crowd(t, readers, func(i int) error {
			select {
			case r := <-got:
				got <- r
				return fmt.Errorf("a writer got in among readers: %v", r.err)
			default:
			}
			if err := leases[i].Err(); err != nil {
				return err
			}
			return leases[i].Unlock(ctx)
		})
		t.Logf("locked in %v, unlocked in %v",
			locked.Sub(began).Round(time.Millisecond), time.Since(inspected).Round(time.Millisecond))
		r := <-got
		if r.err != nil {
			t.Fatal(r.err)
		}
		harness.Check(t, r.l.Unlock(ctx))
		p.idle(t)
		if p.server != nil {
			n := p.admin.DBSize(ctx).Val()
			harness.ErrorIf(t, n != 0, "%d keys are left", n)
		}
	})
}

// Locks among ten times as many other keys are listed in bounded memory, by commands that take no time.
func TestLimit_AListOfManyLocks(t *testing.T) {
	list := func(t *testing.T, p *place) {
		ctx := t.Context()
		many := limit(1000, 100_000)
		p.fill(t, 10*many, func(pipe goredis.Pipeliner, i int) { pipe.Set(ctx, fmt.Sprint("locks:other:", i), i, 0) })
		p.fill(t, many/10, func(pipe goredis.Pipeliner, i int) {
			pipe.HSet(ctx, fmt.Sprint("locks:user:", i), "name", "a:1")
		})
		p.fill(t, many, func(pipe goredis.Pipeliner, i int) {
			name := fmt.Sprint("locks:", i)
			pipe.HSet(ctx, name, "some/host/12:7", 1)
			pipe.PExpire(ctx, name, time.Hour)
		})
		harness.Check(t, p.admin.ConfigSet(ctx, "slowlog-log-slower-than", "1000").Err())
		harness.Check(t, p.admin.SlowLogReset(ctx).Err())
		before, most, first := heap(), 0, time.Duration(0)
		seen := make([]bool, many)
		began, found := time.Now(), 0
		for info, err := range p.client.Locks(ctx, "locks:") {
			harness.FatalIf(t, err != nil, "Locks: %v", err)
			if found++; found == 1 {
				first = time.Since(began)
			}
			i, err := strconv.Atoi(strings.TrimPrefix(info.Name, "locks:"))
			harness.FatalIf(t, err != nil || info.Owner != "some/host/12:7" || info.PID != 0, "it lists %+v, %v", info, err)
			seen[i] = true
			if found%(many/10) == 0 {
				most = max(most, heap()-before)
			}
		}
		took := time.Since(began)
		for i, is := range seen {
			harness.FatalIf(t, !is, "lock %d of %d is not listed", i, many)
		}
		slowest := time.Duration(0)
		for _, x := range harness.Must(p.admin.SlowLogGet(ctx, 128).Result())(t) {
			slowest = max(slowest, x.Duration)
		}
		commands := harness.Must(p.admin.Info(ctx, "commandstats").Result())(t)
		harness.ErrorIf(t, strings.Contains(commands, "cmdstat_keys"), "KEYS was sent")
		harness.ErrorIf(t, most > 64<<20, "the heap grew by %d bytes, want 64 MiB at most", most)
		if *toTheLimit {
			harness.ErrorIf(t, slowest > 10*time.Millisecond, "a command took %v, want 10ms at most", slowest)
			harness.ErrorIf(t, first > time.Second, "the first lock came after %v, want a second at most", first)
		}
		t.Logf("%d locks among %d other keys: the first after %v, all in %v, %d found; heap %+d bytes; slowest command %v",
			many, 10*many+many/10, first.Round(time.Microsecond), took.Round(time.Millisecond), found, most, slowest)
	}
	for _, store := range []string{byRedis, byCached} { // memory has no other keys
		t.Run(store, func(t *testing.T) { list(t, newPlace(t, store)) })
	}
}

// fill sends n groups of commands, a thousand at once.
func (p *place) fill(t *testing.T, n int, send func(pipe goredis.Pipeliner, i int)) {
	t.Helper()
	for at := 0; at < n; at += 1000 {
		harness.Must(p.admin.Pipelined(t.Context(), func(pipe goredis.Pipeliner) error {
			for i := at; i < min(at+1000, n); i++ {
				send(pipe, i)
			}
			return nil
		}))(t)
	}
}
