package interop

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/semaphore"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// slow is for Go clients that wait: none of them asks again by itself while a test lasts.
var slow = mortise.WithWatchdogTimeout(minutes)

// wakes: what one side holds the other is refused and waits for, and the release wakes it.
func wakes(p *pair) {
	for _, f := range families {
		p.leaf(f.name+"/JavaReleases", f.name+"/j", func(p *pair) {
			p.wakes(p.javaUser(p.redisson, f.held, p.name, "holder"),
				p.goUser(p.golang(slow), f.wanted, p.name), p.goUser(p.golang(slow), f.wanted, p.name))
		})
		p.leaf(f.name+"/GoReleases", f.name+"/g", func(p *pair) {
			p.wakes(p.goUser(p.golang(slow), f.held, p.name),
				p.javaUser(p.redisson, f.wanted, p.name, "waiter"), p.javaUser(p.redisson, f.wanted, p.name, "other"))
		})
	}
}

func (p *pair) wakes(holder, waiter, other user) {
	p.Helper()
	holder.take(minutes)
	other.refused()
	rested(waiter)
	event := time.Now()
	holder.give()
	p.figure("from the release to the waiter", waiter.woken(event))
	switch w := waiter.(type) {
	case *goUser:
		if w.kind == "latch" {
			return
		}
		if w.lease != nil {
			fenced := w.lease.Token() != 0
			harness.ErrorIf(p, fenced != (w.kind == "fenced"), "the lease is fenced: %v", fenced)
		}
	case *javaUser:
		switch w.kind {
		case "latch":
			return
		case "semaphore", "permits":
		default:
			w.held("that it waited for")
		}
	}
	var kind string
	switch h := holder.(type) {
	case *javaUser:
		kind = h.kind
		harness.ErrorIf(p, h.owner() != "" && h.state().State.Held, "Java still believes to hold it")
	case *goUser:
		kind = h.kind
	}
	if kind != "read" { // which may read beside a reader
		holder.refused()
	}
	waiter.give()
	if counted(kind) {
		p.gone(p.name, 1)
	}
}

// order: twenty waiters for a fair lock, Java and Go in turn, are served in the order in
// which they asked. The store's queue shows which asked when.
func order(p *pair) {
	const waiters = 20
	queue := "redisson_lock_queue:" + tagged(p.name)
	first := p.javaUser(p.redisson, "fair", p.name, "first")
	other := p.java.open(p.T, p.site, "other", 0)
	clients := []*golang{p.golang(), p.golang()}
	first.take(minutes)

	turns := make(chan int, waiters)
	all := make([]user, waiters)
	for i := range all {
		switch i % 4 {
		case 0:
			all[i] = p.javaUser(p.redisson, "fair", p.name, fmt.Sprint(i))
		case 2:
			all[i] = p.javaUser(other, "fair", p.name, fmt.Sprint(i))
		default:
			all[i] = p.goUser(clients[i/2%2], "fair", p.name)
		}
		all[i].begin()
		until(p.T, fmt.Sprintf("waiter %d to stand in the queue", i), func() bool {
			standing := p.site.must(p.T, "LRANGE", queue, "0", "-1").([]any)
			harness.FatalIf(p, len(standing) > i+1,
				"waiter %d has asked, %d stand in the queue: %v", i, len(standing), standing)
			return len(standing) == i+1 && strings.HasPrefix(standing[i].(string), all[i].owner())
		})
		go func() {
			<-all[i].early()
			turns <- i
		}()
	}

	event := time.Now()
	first.give()
	served, next := make([]bool, waiters), 0
	for gave := event; next < waiters; gave = time.Now() {
		got := 0
		select {
		case got = <-turns:
		case <-time.After(long):
			p.Fatalf("number %d was not served; the queue is %v", next, p.site.must(p.T, "LRANGE", queue, "0", "-1"))
		}
		// A client that a busy machine keeps from asking for so long is passed over, by its rule.
		harness.FatalIf(p, got != next && time.Since(gave) < backend.Absence,
			"number %d to ask was served as number %d", got, next)
		for served[got] = true; next < waiters && served[next]; next++ {
		}
		all[got].woken(event)
		all[got].give()
	}
	p.figure(fmt.Sprintf("%d handovers in", waiters), time.Since(event))
}

// holdCounts: what one side holds n times, the other sees held n times, and by which owner.
func holdCounts(p *pair) {
	for _, kind := range []string{"plain", "fenced", "fair", "write"} {
		p.leaf(kind, kind, func(p *pair) { p.holdCounts(kind) })
	}
}

func (p *pair) holdCounts(kind string) {
	j := p.redisson.thread(p.T, "t").lockOf(kind, p.name)
	other := p.redisson.thread(p.T, "other").lockOf(kind, p.name)
	holder := p.golang()
	g := p.goUser(p.golang(), kind, p.name)

	for n := 1; n <= 3; n++ {
		j.lock(minutes)
		s := g.inspect(p.name)
		if !s.Held || s.Owner != j.owner() || s.Client != p.redisson.id || s.Holds != n || s.Mine ||
			s.Writing != (kind == "write") {
			p.Errorf("Inspect of what Java's %s holds %d times: %+v", j.owner(), n, s)
		}
		got := j.state().State.Holds
		harness.ErrorIf(p, got != n, "Java holds it %d times and says %d", n, got)
	}
	for n := 2; n >= 0; n-- {
		g.refused()
		j.unlock()
		s := g.inspect(p.name)
		harness.ErrorIf(p, s.Holds != n || s.Held != (n > 0), "Inspect of what Java holds %d times: %+v", n, s)
	}

	var leases []*mortise.Lease
	ctx := context.Background()
	again := func() {
		lease := harness.Must(holder.locker(kind).Lock(ctx, p.name, in(long)))(holder.t)
		leases = append(leases, lease)
		ctx = lease.Context()
	}
	again()
	owner := holder.inspect(p.name).Owner
	client := strings.TrimSuffix(owner, ":"+number(owner))
	id := harness.Must(strconv.ParseInt(number(owner), 10, 64))(p)
	holds := func(n int) string {
		switch {
		case n == 0:
			return "{}"
		case kind == "write":
			return fmt.Sprintf("{%q:%q,%q:%q}", "mode", "write", owner+":write", fmt.Sprint(n))
		}
		return fmt.Sprintf("{%q:%q}", owner, fmt.Sprint(n))
	}
	reads := func(n int) {
		p.Helper()
		got := p.hash(other)
		harness.ErrorIf(p, got != holds(n), "Java reads %s, want %s", got, holds(n))
	}
	for n := 1; ; n++ {
		if s := other.state().State; !s.Locked || s.Held || s.Holds != 0 || s.Remaining <= 0 {
			p.Errorf("Java says of the lock that Go holds: %+v", s)
		}
		if !other.heldBy(client, id) || other.heldBy(p.redisson.id, other.id) {
			p.Errorf("Java takes the owner for another, the hash is %s", p.hash(other))
		}
		reads(n)
		s := holder.inspect(p.name)
		harness.ErrorIf(p, s.Holds != n || !s.Mine, "Inspect of what Go holds %d times: %+v", n, s)
		if n == 3 {
			break
		}
		again()
	}
	for n := 2; n >= 0; n-- {
		_, ok := other.tryLock(0, minutes)
		harness.FatalIf(p, ok, "Java got the lock that Go holds")
		holder.unlock(leases[n])
		reads(n)
	}
	s := other.state().State
	harness.ErrorIf(p, s.Locked, "Java says of a free lock: %+v", s)
}

// readers of both languages read side by side, keep writers out to the last, and count as what
// they are: a Java thread's holds as one reader with a count, each lease of Go's as a reader.
func readers(p *pair) {
	j := p.redisson.thread(p.T, "reader").lockOf("read", p.name)
	writer := p.javaUser(p.redisson, "write", p.name, "writer")
	g := p.golang(slow)
	read, write := g.RW().Read, g.RW().Write
	ctx := context.Background()
	inspect := func(readers int) {
		p.Helper()
		s := g.inspect(p.name)
		harness.ErrorIf(p, !s.Held || s.Writing || s.Readers != readers, "%d read, Inspect says %+v", readers, s)
	}

	j.lock(minutes)
	j.lock(minutes)
	if s := g.inspect(p.name); s.Readers != 1 || s.Holds != 2 || s.Owner != j.owner() ||
		s.Client != p.redisson.id {
		p.Errorf("Inspect of what one Java thread reads twice: %+v", s)
	}
	a := harness.Must(read.Lock(ctx, p.name, in(long), mortise.WithLease(minutes)))(g.t)
	b := harness.Must(read.Lock(a.Context(), p.name, in(long), mortise.WithLease(minutes)))(g.t)
	inspect(3)
	if s := j.state().State; !s.Locked || !s.Held || s.Holds != 2 {
		p.Errorf("Java holds it twice beside Go's readers and says: %+v", s)
	}
	harness.CheckIsf(p, harness.Err(write.TryLock(ctx, p.name)), mortise.ErrNotAcquired,
		"Go writes while four holds read")
	writer.refused()
	rested(writer)
	g.unlock(a)
	j.unlock()
	inspect(2)
	j.unlock()
	inspect(1)
	writer.refused2(p)
	g.unlock(b)
	writer.woken(time.Now())

	// A writer of Java's goes on as a reader, as Go's do; another waits for it.
	down := writer.thread.lockOf("read", p.name)
	down.lock(minutes)
	writer.give()
	inspect(1)
	c := harness.Must(read.Lock(ctx, p.name, in(long), mortise.WithLease(minutes)))(g.t)
	down.unlock()
	inspect(1)
	waits := rested(p.javaUser(p.redisson, "write", p.name, "second"))
	g.unlock(c)
	waits.woken(time.Now())
	waits.give()

	// One of Go's, while a Java reader waits for it: the downgrade lets it in.
	w := harness.Must(write.Lock(ctx, p.name, in(long), mortise.WithLease(minutes)))(g.t)
	reader := rested(p.javaUser(p.redisson, "read", p.name, "third"))
	r := harness.Must(read.Lock(w.Context(), p.name, in(long), mortise.WithLease(minutes)))(g.t)
	g.unlock(w)
	reader.woken(time.Now())
	inspect(2)
	g.unlock(r)
	inspect(1)
	reader.give()
}

// refused2 is refused for one that waits already.
func (u *javaUser) refused2(p *pair) {
	p.Helper()
	p.javaUser(u.client, u.kind, u.rlock.name, "another").refused()
}

// remainingTime: what each says is left of the other's lease is what the server says.
func remainingTime(p *pair) {
	for _, f := range []family{families[0], families[1], families[2], {"reads", "read", "write"},
		{"writes", "write", "read"}, {"permits", "permits", "permits"}} {
		p.leaf(f.name, f.name, func(p *pair) { p.remainingTime(f) })
	}
}

func (p *pair) remainingTime(f family) {
	// The server may be asked some time before, and after, what it is compared with.
	const slack = 100 * time.Millisecond
	left := func() time.Duration {
		if f.held != "permits" {
			return p.site.pttl(p.T, p.name)
		}
		return p.permitEnds(p.name)[0].left
	}
	between := func(who string, read func() time.Duration) {
		p.Helper()
		var most, got, least time.Duration
		for range 3 { // it may be renewed meanwhile, not each time
			most, got, least = left(), read(), left()
			if got <= most+slack && got >= least-slack {
				return
			}
		}
		p.Errorf("%s says that %v is left, the server said %v before and %v after", who, got, most, least)
	}
	j := p.javaUser(p.redisson, f.held, p.name, "t")
	holder := p.goUser(p.golang(mortise.WithWatchdogTimeout(5*time.Minute)), f.held, p.name)
	wants := p.goUser(p.golang(), f.wanted, p.name)
	byJava := func() time.Duration { return time.Duration(j.state().State.Remaining) * time.Millisecond }
	inspected := func() time.Duration { return wants.inspect(p.name).Remaining }

	for _, side := range []struct {
		name     string
		user     user
		watchdog time.Duration
	}{{"Java", j, 30 * time.Second}, {"Go", holder, 5 * time.Minute}} {
		for _, lease := range []time.Duration{0, 10 * time.Minute} {
			if f.held == "permits" && side.user == user(j) && lease == 0 {
				continue // Redisson's are for ever then
			}
			side.user.take(lease)
			between("Go, refused,", wants.left)
			if f.held != "permits" {
				between("Inspect", inspected)
				between("Java", byJava)
			}
			most := cmp.Or(lease, side.watchdog)
			got := wants.left()
			harness.ErrorIf(p, got < most-time.Minute || got > most, "%v is left of %s's lease of %v", got, side.name, most)
			side.user.give()
		}
	}
	if f.held == "permits" {
		p.gone(p.name, 1)
	} else if left := j.state().State.Remaining; left != -2 {
		p.Errorf("Java says that %d ms are left of a free lock", left)
	}
}

// permitEnd is a permit that is out.
type permitEnd struct {
	id   string
	left time.Duration // until it ends, by the server's clock
}

// permitEnds are the permits that are out, the first to end first.
func (p *pair) permitEnds(name string) (all []permitEnd) {
	p.Helper()
	for range 10 {
		members := p.site.must(p.T, "ZRANGE", tagged(name)+":timeout", "0", "-1", "WITHSCORES").([]any)
		for _, server := range p.site.servers {
			now := server.Must("TIME").([]any)
			s, err1 := strconv.ParseInt(now[0].(string), 10, 64)
			us, err2 := strconv.ParseInt(now[1].(string), 10, 64)
			harness.OK(p, errors.Join(err1, err2))
			for i := 0; i < len(members); i += 2 {
				score := harness.Must(strconv.ParseFloat(members[i+1].(string), 64))(p)
				all = append(all, permitEnd{hex.EncodeToString([]byte(members[i].(string))),
					time.Duration(int64(score)-s*1000-us/1000) * time.Millisecond})
			}
			return all // all servers are on this machine: one clock
		}
	}
	return nil
}

// forces: either side takes away by force what the other holds. The holder learns of it, the waiter
// is woken, and what the holder still does harms no other.
func forces(p *pair) {
	for _, f := range []family{families[0], families[1], families[2], {"reads", "read", "write"},
		{"writes", "write", "read"}} {
		p.leaf(f.name+"/Java", f.name+"/j", func(p *pair) { p.javaForces(f) })
		p.leaf(f.name+"/Go", f.name+"/g", func(p *pair) { p.goForces(f) })
	}
}

func (p *pair) javaForces(f family) {
	operator := p.redisson.thread(p.T, "operator").lockOf(f.held, p.name)
	force := func() time.Time {
		p.Helper()
		event := time.Now()
		harness.ErrorIf(p, !operator.forceUnlock(), "Java says that there was no lock")
		return event
	}
	forced := func(l *mortise.Lease) {
		p.Helper()
		err := l.Unlock(context.Background())
		harness.ErrorIf(p, !errors.Is(err, mortise.ErrLost),
			"Unlock of the lease that was forced: %v", err)
	}

	// The holder learns, at its next renewal or at once.
	holder := p.goUser(p.golang(mortise.WithWatchdogTimeout(6*time.Second)), f.held, p.name)
	holder.take(0)
	event := force()
	holder.lost()
	p.figure("Java's forceUnlock to the end of the lease that was forced", time.Since(event))
	forced(holder.lease)

	// A Go waiter is woken.
	holder = p.goUser(p.golang(slow), f.held, p.name)
	holder.take(minutes)
	next := rested(p.goUser(p.golang(slow), f.wanted, p.name))
	p.figure("Java's forceUnlock to Go's lease", next.woken(force()))
	forced(holder.lease)
	harness.Checkf(p, next.lease.Err(), "the next holder lost its lease")
	next.give()

	// A Java waiter is woken.
	holder.take(minutes)
	j := rested(p.javaUser(p.redisson, f.wanted, p.name, "waiter"))
	j.woken(force())
	forced(holder.lease)
	j.held("after Go unlocked what it had lost")
	j.give()
	harness.ErrorIf(p, operator.forceUnlock(), "Java says that there was a lock")
}

func (p *pair) goForces(f family) {
	operator := p.golang()
	force := func() time.Time {
		p.Helper()
		event := time.Now()
		harness.ErrorIf(p, !operator.force(p.name), "Go says that there was no lock")
		return event
	}
	notHeld := func(l *javaUser) {
		p.Helper()
		got := l.try(l.ask("unlock"))
		harness.ErrorIf(p, got.Error != "IllegalMonitorStateException", "Java's unlock of the lock that was forced: %+v", got)
	}

	holder := p.javaUser(p.redisson, f.held, p.name, "holder")
	holder.take(0)
	j := rested(p.javaUser(p.redisson, f.wanted, p.name, "waiter"))
	p.figure("Go's ForceUnlock to Java's lock", j.woken(force()))
	harness.ErrorIf(p, holder.state().State.Held, "Java says that it holds what was forced")
	notHeld(holder)
	j.held("after the last holder unlocked")
	j.give()

	holder.take(minutes)
	g := rested(p.goUser(p.golang(slow), f.wanted, p.name))
	g.woken(force())
	notHeld(holder)
	harness.Checkf(p, g.lease.Err(), "Go lost the lease")
	g.give()
	harness.ErrorIf(p, operator.force(p.name), "Go says that there was a lock")
}

// renewed are the things of a watchdog test, and what is left of each.
type renewed struct {
	holder, waiter, other user
	left                  func() time.Duration
	last                  time.Duration
	rises                 int
}

// watchdog is short enough for a test to see several renewals, and long enough for a machine to
// stop for seconds between two of them.
const watchdog = 8 * time.Second

// renewals watches until each thing's time has been put up often enough, and each has been held
// for much longer than that time. After each renewal another asks for it in vain.
func (p *pair) renewals(things map[string]*renewed) {
	p.Helper()
	const often = 4
	for _, x := range things {
		x.holder.take(0)
		x.waiter.begin()
		x.last = x.left()
	}
	start := time.Now()
	for done := false; !done; time.Sleep(50 * time.Millisecond) {
		done = time.Since(start) > watchdog*3/2
		for name, x := range things {
			left := x.left()
			switch {
			case left <= 0:
				p.Fatalf("%s: it is gone after %v and %d renewals", name, time.Since(start), x.rises)
			case left > watchdog:
				p.Fatalf("%s: %v are left of a watchdog's %v", name, left, watchdog)
			case left > x.last:
				x.rises++
				x.other.refused()
			}
			x.last = left
			done = done && x.rises >= often
		}
		if time.Since(start) > 8*watchdog {
			for name, x := range things {
				p.Errorf("%s: %d renewals in %v", name, x.rises, time.Since(start))
			}
			p.FailNow()
		}
	}
	for name, x := range things {
		harness.FatalIf(p, over(x.waiter), "%s: a waiter got what is held, or gave up", name)
	}
	p.figure(fmt.Sprintf("at least %d renewals of each seen, held for", often), time.Since(start))
}

func (p *pair) pttlOf(name string) func() time.Duration {
	return func() time.Duration { return p.site.pttl(p.T, name) }
}

// javaWatchdogs keep locks beyond their lease; when Java dies, Go gets them. (Redisson renews no
// permits.)
func javaWatchdogs(p *pair) {
	short := p.java.open(p.T, p.site, "short", watchdog)
	things := make(map[string]*renewed)
	for _, f := range families[:5] {
		name := p.name + "/" + f.name
		things[f.name] = &renewed{
			holder: p.javaUser(short, f.held, name, f.name),
			waiter: p.goUser(p.golang(), f.wanted, name),
			other:  p.goUser(p.golang(), f.wanted, name),
			left:   p.pttlOf(name),
		}
	}
	p.renewals(things)
	event := time.Now()
	short.close(p.T)
	for name, x := range things {
		p.figure("end of Java's client to Go's lease, "+name, x.waiter.woken(event))
		x.waiter.give()
	}
}

// longReads: a Java reader that renews cuts the time of those beside it down to its own timeout.
// Go's keeps its longer lease all the same, also when Java dies.
func longReads(p *pair) {
	short := p.java.open(p.T, p.site, "short", watchdog)
	j := p.javaUser(short, "read", p.name, "t")
	g := p.goUser(p.golang(mortise.WithWatchdogTimeout(watchdog)), "read", p.name)
	writers := []user{p.javaUser(p.redisson, "write", p.name, "writer"), p.goUser(p.golang(), "write", p.name)}
	left := p.pttlOf(p.name)
	g.take(minutes)
	j.take(0)
	// Cut, and asserted again, twice.
	for range 2 {
		until(p.T, "Java's watchdog to cut the time", func() bool { return left() <= watchdog })
		until(p.T, "Go's reader to assert its lease", func() bool { return left() > watchdog })
	}
	short.close(p.T)
	start := time.Now()
	until(p.T, "Java's reader to be over, and Go's to be alone", func() bool {
		for _, w := range writers {
			w.refused()
		}
		s := g.inspect(p.name)
		return time.Since(start) > watchdog*3/2 && s.Readers == 1 && s.Mine && s.Remaining > watchdog
	})
	harness.Checkf(p, g.lease.Err(), "Go's reader")
	g.give()
	for _, w := range writers {
		w.take(minutes)
		w.give()
	}
}

// javaReadsTwice shows what docs/reference/redisson.md warns of: Redisson 3.52 does not renew the holds of
// a thread that reads twice, though it renews the record, so another reader that unlocks frees the lock. 4.7 does.
func javaReadsTwice(p *pair) {
	short := p.java.open(p.T, p.site, "short", watchdog)
	j := short.thread(p.T, "t").lockOf("read", p.name)
	reader := p.goUser(p.golang(), "read", p.name)
	writer := p.goUser(p.golang(), "write", p.name)
	left := p.pttlOf(tagged(p.name) + ":" + j.owner() + ":rwlock_timeout:1")
	j.lock(0)
	j.lock(0)
	start := time.Now()
	until(p.T, "one and a half timeouts to pass", func() bool { return time.Since(start) > watchdog*3/2 })
	writer.refused()
	renewed := p.java.version != "3.52.0"
	if left := left(); left > 0 != renewed {
		p.Errorf("Redisson %s: %v are left of the first hold of a thread that reads twice", p.java.version, left)
	}
	reader.take(minutes)
	reader.give()
	harness.ErrorIf(p, j.state().State.Held != renewed,
		"Redisson %s: its reader holds the lock: %v", p.java.version, !renewed)
	if renewed {
		writer.refused()
		j.unlock()
		j.unlock()
		return
	}
	writer.take(minutes)
	writer.give()
}

// goWatchdogs: the same the other way round, and permits.
func goWatchdogs(p *pair) {
	client := harness.Must(mortise.New(p.adapter.open(p.T, p.site), mortise.WithWatchdogTimeout(watchdog)))(p)
	defer client.Close()
	g := &golang{client, p.T}
	things := make(map[string]*renewed)
	for _, f := range append(families[:5:5], family{"permits", "permits", "permits"}) {
		if f.name == "fair" && p.java.version == oldest {
			continue // it does not ask again when the time is over that its holder had
		}
		name := p.name + "/" + f.name
		things[f.name] = &renewed{
			holder: p.goUser(g, f.held, name),
			waiter: p.javaUser(p.redisson, f.wanted, name, f.name),
			other:  p.javaUser(p.redisson, f.wanted, name, f.name+"/other"),
			left:   p.pttlOf(name),
		}
	}
	name := p.name + "/permits"
	things["permits"].left = func() time.Duration {
		for _, end := range p.permitEnds(name) {
			return end.left
		}
		return 0
	}
	p.renewals(things)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	event := time.Now()
	err := g.Shutdown(ended)
	harness.ErrorIf(p, err == nil, "Shutdown says that nothing was held")
	for name, x := range things {
		p.figure("end of Go's client to Java's lock, "+name, x.waiter.woken(event))
		held := x.holder.(*goUser)
		err := held.lease.Err()
		if held.kind == "permits" {
			err = held.permit.Err()
		}
		harness.ErrorIf(p, !errors.Is(err, mortise.ErrClosed), "Java has %s, and Go's lease says %v", name, err)
		x.waiter.give()
	}
	p.gone(name, 1)
}

// plainAmongFair: one fleet locks a name by the plain kind, another by the fair one. Go's fair
// waiters hear of Java's plain release, and Java's plain waiters of Go's fair release.
func plainAmongFair(p *pair) {
	j := p.javaUser(p.redisson, "plain", p.name, "t")
	g := p.goUser(p.golang(slow), "fair", p.name)
	j.take(minutes)
	rested(g)
	j.give()
	g.woken(time.Now())
	rested(j)
	g.give()
	j.woken(time.Now())
	j.give()
}

func (p *pair) java1(kind, name string) func(op string, r request) reply {
	th := p.redisson.thread(p.T, "counts")
	return func(op string, r request) reply {
		p.Helper()
		r.Op, r.Kind, r.Name = op, kind, name
		return th.do(r)
	}
}

// agree asserts that both sides count the same.
func (p *pair) agree(what string, byJava int64, byGo int, err error, want int) {
	p.Helper()
	harness.ErrorIf(p, err != nil || byJava != int64(want) || byGo != want,
		"%s: Java says %d, Go says %d (%v), it should be %d", what, byJava, byGo, err, want)
}

// semaphoreCounts: both sides count the same permits, and a message wakes as many as there are
// permits for.
func semaphoreCounts(p *pair) {
	ctx := context.Background()
	java := p.java1("semaphore", p.name)
	g := p.golang()
	s := semaphore.NewCounting(g.Client, p.name)
	free := func(want int) {
		p.Helper()
		n, err := s.Available(ctx)
		p.agree("free permits", java("available", request{}).Number, n, err, want)
	}
	free(0)
	harness.ErrorIf(p, !java("set", request{Count: 5}).OK, "Java could not set the semaphore")
	set, err := s.TrySetPermits(ctx, 9)
	harness.ErrorIf(p, err != nil || set, "Go set what Java had set: %v, %v", set, err)
	free(5)
	g.must(s.Acquire(ctx, 2))
	free(3)
	harness.ErrorIf(p, !java("acquire", request{Count: 2}).OK || java("acquire", request{Count: 2}).OK,
		"Java takes 2 of 3, and then 2 of 1")
	harness.CheckIsf(p, s.TryAcquire(ctx, 2), mortise.ErrNotAcquired, "Go took 2 of 1")
	free(1)
	// What one took the other may give back.
	java("release", request{Count: 2})
	g.must(s.Release(ctx, 2))
	free(5)
	java("add", request{Count: -7})
	free(-2)
	g.must(s.AddPermits(ctx, 6))
	free(4)
	n, err := s.Drain(ctx)
	harness.ErrorIf(p, err != nil || n != 4, "Go drained %d of 4: %v", n, err)
	java("add", request{Count: 3})
	if n := java("drain", request{}).Number; n != 3 {
		p.Errorf("Java drained %d of 3", n)
	}
	free(0)

	// Three wait, on both sides; three permits come at once.
	var waiting []user
	for i := range 3 {
		waiting = append(waiting, p.javaUser(p.redisson, "semaphore", p.name, fmt.Sprint("waiter ", i)))
		waiting = append(waiting, p.goUser(g, "semaphore", p.name))
	}
	for _, u := range waiting {
		u.begin()
	}
	for _, u := range waiting {
		if _, ok := u.(*javaUser); ok {
			u.rest()
		}
	}
	served := func(want int) {
		until(p.T, fmt.Sprintf("%d to have a permit", want), func() bool {
			n := 0
			for _, u := range waiting {
				if over(u) {
					n++
				}
			}
			harness.FatalIf(p, n > want, "%d have a permit of %d", n, want)
			return n == want
		})
	}
	g.must(s.Release(ctx, 3))
	served(3)
	java("release", request{Count: 2})
	served(5)
	java("release", request{Count: 1})
	served(6)
	for _, u := range waiting {
		u.woken(time.Now())
		u.give()
	}
	free(6)
	p.gone(p.name, 6)
}

// permitCounts: both sides count the same permits, and know them by the same ids: what one side
// took the other releases, and prolongs.
func permitCounts(p *pair) {
	ctx := context.Background()
	java := p.java1("permits", p.name)
	g := p.golang(slow)
	s := semaphore.New(g.Client, p.name, 0)
	counts := func(free, out int) {
		p.Helper()
		n, err := s.Available(ctx)
		p.agree("free permits", java("available", request{}).Number, n, err, free)
		if n := java("acquired", request{}).Number; n != int64(out) {
			p.Errorf("Java says that %d are out, it should be %d", n, out)
		}
		if n := java("permits", request{}).Number; n != int64(free+out) {
			p.Errorf("Java says that there are %d in all, it should be %d", n, free+out)
		}
	}
	ids := func(want ...string) {
		p.Helper()
		var got []string
		for _, end := range p.permitEnds(p.name) {
			got = append(got, end.id)
		}
		slices.Sort(got)
		slices.Sort(want)
		harness.ErrorIf(p, !slices.Equal(got, want), "the ids in the store are %q, not %q", got, want)
	}
	harness.ErrorIf(p, !java("set", request{Count: 3}).OK, "Java could not set the permits")
	set, err := s.TrySetPermits(ctx, 9)
	harness.ErrorIf(p, err != nil || set, "Go set what Java had set: %v, %v", set, err)
	counts(3, 0)
	mine := harness.Must(s.Acquire(ctx, 1))(g.t)
	theirs := java("acquire", request{Lease: minutes.Milliseconds()}).Text
	forever := java("acquire", request{}).Text
	counts(0, 3)
	ids(mine.IDs()[0], theirs, forever)

	// Java prolongs Go's permit, and Go's renewals do not shorten it.
	harness.ErrorIf(p, !java("lease", request{Permit: mine.IDs()[0], Lease: (3 * minutes).Milliseconds()}).OK,
		"Java does not know the permit that Go holds")
	if end := p.permitEnds(p.name)[1]; end.id != mine.IDs()[0] || end.left < 2*minutes {
		p.Errorf("Java prolonged %s to %v; the store says %+v", mine.IDs()[0], 3*minutes, end)
	}

	// Each releases by its id what the other has.
	g.must(s.Release(ctx, theirs))
	harness.ErrorIf(p, java("tryRelease", request{Permit: theirs}).OK, "Java released what Go had released")
	harness.CheckIsf(p, s.Release(ctx, theirs), semaphore.ErrNotHeld, "Go releases it again")
	g.must(s.Release(ctx, strings.ToUpper(forever)))
	counts(2, 1)
	harness.ErrorIf(p, !java("tryRelease", request{Permit: mine.IDs()[0]}).OK, "Java could not release the permit of Go")
	harness.CheckIsf(p, mine.Release(ctx), mortise.ErrLost, "Go releases what Java had released")
	ids()
	counts(3, 0)

	// A permit of Go's that Java releases wakes Go's waiter, and the reverse.
	java("resize", request{Count: 1})
	counts(1, 0)
	mine = harness.Must(s.Acquire(ctx, 1, mortise.WithLease(minutes)))(g.t)
	waiter := rested(p.goUser(p.golang(slow), "permits", p.name))
	java("release", request{Permit: mine.IDs()[0]})
	waiter.woken(time.Now())
	notMine := func(permit *semaphore.Permit) {
		p.Helper()
		harness.CheckIsf(p, permit.Release(ctx), mortise.ErrLost,
			"Release of a permit that another has released by its id")
	}
	notMine(mine)
	back := rested(p.javaUser(p.redisson, "permits", p.name, "waiter"))
	g.must(s.Release(ctx, waiter.permit.IDs()[0]))
	back.woken(time.Now())
	notMine(waiter.permit)
	ids(back.permit)
	back.give()

	java("add", request{Count: 2})
	counts(3, 0)
	g.must(s.AddPermits(ctx, -4))
	counts(-1, 0)
	g.must(s.AddPermits(ctx, 1))
	p.gone(p.name, 0)
}

// permitsEnd: what ran out is back, for both sides, and a waiter takes it then.
func permitsEnd(p *pair) {
	const short = 2 * time.Second // that outlives its own request on a slow machine
	ctx := context.Background()
	java := p.java1("permits", p.name)
	g := p.golang()
	set, err := semaphore.New(g.Client, p.name, 0).TrySetPermits(ctx, 1)
	harness.FatalIf(p, err != nil || !set, "Go sets the permits: %v, %v", set, err)
	mine := harness.Must(semaphore.New(g.Client, p.name, 0).Acquire(ctx, 1, mortise.WithLease(short)))(g.t)
	got := java("acquire", request{Wait: long.Milliseconds(), Lease: short.Milliseconds()})
	harness.FatalIf(p, !got.OK, "Java did not get the permit that had ended")
	harness.CheckIsf(p, mine.Err(), mortise.ErrLost, "Java has the permit, and Go's says")
	harness.CheckIsf(p, mine.Release(ctx), mortise.ErrLost, "Go releases a permit that had ended")
	next := harness.Must(semaphore.New(g.Client, p.name, 0).Acquire(ctx, 1, in(long)))(g.t)
	harness.ErrorIf(p, java("tryRelease", request{Permit: got.Text}).OK, "Java released a permit that had ended")
	g.must(next.Err())
	g.must(next.Release(ctx))
	p.gone(p.name, 1)
}

// latchCounts: both sides count one latch down, and zero opens it for all waiters.
func latchCounts(p *pair) {
	ctx := context.Background()
	java := p.java1("latch", p.name)
	g := p.golang()
	l := latch.New(g.Client, p.name)
	left := func(want int) {
		p.Helper()
		n, err := l.Count(ctx)
		p.agree("the count", java("count", request{}).Number, int(n), err, want)
	}
	sets := func(n int64, want bool) {
		p.Helper()
		set, err := l.TrySet(ctx, n)
		harness.ErrorIf(p, err != nil || set != want, "Go sets the latch to %d: %v, %v; want %v", n, set, err, want)
	}
	for _, round := range []struct{ set, last string }{{"java", "go"}, {"go", "java"}} {
		left(0)
		g.must(l.CountDown(ctx)) // of a latch that is open: nothing
		left(0)
		if round.set == "java" {
			harness.ErrorIf(p, !java("set", request{Count: 3}).OK, "Java could not set the latch")
		} else {
			sets(3, true)
		}
		sets(9, false)
		harness.ErrorIf(p, java("set", request{Count: 9}).OK, "Java set a latch that was set")
		var waiting []user
		for i := range 2 {
			waiting = append(waiting, p.javaUser(p.redisson, "latch", p.name, fmt.Sprint(round.set, i)),
				p.goUser(p.golang(), "latch", p.name))
		}
		for _, u := range waiting {
			rested(u)
		}
		java("countDown", request{})
		left(2)
		g.must(l.CountDown(ctx))
		left(1)
		for _, u := range waiting {
			harness.ErrorIf(p, over(u), "a waiter went on at a count of one")
		}
		if round.last == "java" {
			java("countDown", request{})
		} else {
			g.must(l.CountDown(ctx))
		}
		for _, u := range waiting {
			u.woken(time.Now())
		}
	}
	// Each deletes what the other set. (A waiter in Java then goes on waiting: Redisson's way.)
	java("set", request{Count: 2})
	waiter := rested(p.goUser(p.golang(), "latch", p.name))
	deleted, err := l.Delete(ctx)
	harness.ErrorIf(p, err != nil || !deleted, "Go deletes the latch: %v, %v", deleted, err)
	waiter.woken(time.Now())
	sets(2, true)
	waiter = rested(p.goUser(p.golang(), "latch", p.name))
	harness.ErrorIf(p, !java("delete", request{}).OK, "Java could not delete the latch")
	waiter.woken(time.Now())
	left(0)
}
