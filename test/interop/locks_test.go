package interop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// tests run on each pair, side by side. Each releases what it takes; that nothing is
// left is checked for all of them.
var tests = []struct {
	name string
	run  func(*pair)
}{
	// The long ones first.
	{"Random", random},
	{"JavaWatchdogs", javaWatchdogs},
	{"GoWatchdogs", goWatchdogs},
	{"LongReads", longReads},
	{"JavaReadsTwice", javaReadsTwice},
	{"Wakes", wakes},
	{"Order", order},
	{"Several", several},
	{"HoldCounts", holdCounts},
	{"Readers", readers},
	{"RemainingTime", remainingTime},
	{"Forces", forces},
	{"SemaphoreCounts", semaphoreCounts},
	{"PermitCounts", permitCounts},
	{"PermitsEnd", permitsEnd},
	{"SeveralPermits", severalPermits},
	{"AcquireAfterAddPermits", acquireAfterAddPermits},
	{"LatchCounts", latchCounts},
	{"PlainAmongFair", plainAmongFair},
	{"Names", names},
	{"OnlyTheOwnerReleases", onlyTheOwnerReleases},
	{"JavaIsWokenByThreeZeros", javaIsWokenByThreeZeros},
	{"ReadWriteIsAnotherKind", readWriteIsAnotherKind},
	{"Tokens", tokens},
	{"TokensOfReentry", tokensOfReentry},
	{"Callees", callees},
}

// minutes is a lease that no test outlives: a waiter that gets the lock was woken by something
// else than its end.
const minutes = 20 * time.Minute

// held asserts that Java holds a lock once.
func (l *rlock) held(when string) {
	l.t.Helper()
	s := l.state().State
	harness.ErrorIf(l.t, !s.Held || s.Holds != 1, "Java's lock %s: %+v", when, s)
}

// mine asserts that Go holds a lock once.
func (g *golang) mine(name, when string) {
	g.t.Helper()
	s := g.inspect(name)
	harness.ErrorIf(g.t, !s.Mine || s.Holds != 1, "Go's lock %s: %+v", when, s)
}

// hash is the record as Java's own map reads it.
func (p *pair) hash(l *rlock) string {
	p.Helper()
	return l.do(request{Op: "hash", Name: l.name}).Text
}

// names that are awkward: what is derived from them must be derived alike.
func names(p *pair) {
	for _, pattern := range []string{"%s", "{%s}", "{%s}:7", "7:{%s}:{x}", "a b %s\t\n", "ключ/%s/鍵", "%s:*?[a]\\"} {
		name := fmt.Sprintf(pattern, p.name)
		j := p.redisson.thread(p.T, "t").lockOf("fenced", name)
		g := p.golang()
		fenced := mortise.Fenced()

		first := j.lock(minutes)
		g.refused(fenced, name)
		w := g.startLock(fenced, name)
		p.waiting(1)
		j.unlock()
		_, lease := g.await(w, time.Now())
		second := lease.Token()
		back := j.startLock()
		p.waiting(1)
		g.unlock(lease)
		_, got := j.await(back, time.Now())
		third := got.Number
		harness.ErrorIf(p, first >= second || second >= third,
			"%q: tokens %d (Java), %d (Go), %d (Java)", name, first, second, third)
		j.unlock()
		p.quiet()
	}
}

func onlyTheOwnerReleases(p *pair) {
	const short = 2 * time.Second // that outlives its own request on a slow machine
	j := p.redisson.thread(p.T, "t").lockOf("plain", p.name)
	other := p.redisson.thread(p.T, "other").lockOf("plain", p.name)
	g := p.golang()
	refusedTo := func(l *rlock) {
		p.Helper()
		got := l.try(l.ask("unlock"))
		harness.ErrorIf(p, got.Error != "IllegalMonitorStateException",
			"Java's unlock of a lock that it does not hold: %+v", got)
	}
	refusedTo(j) // it is free

	lease := g.lock(plainly, p.name)
	refusedTo(j)
	g.mine(p.name, "after Java tried to unlock it")
	g.unlock(lease)

	j.lock(0)
	refusedTo(other)
	j.unlock()

	// A lease that ran out, and the lock is another's.
	lease = g.lock(plainly, p.name, mortise.WithLease(short))
	j.lock(minutes)
	harness.CheckIsf(p, lease.Err(), mortise.ErrLost, "Java has the lock, and Go's lease says")
	harness.CheckIsf(p, lease.Unlock(context.Background()), mortise.ErrLost, "Unlock of a lock that Java holds")
	j.held("after Go tried to unlock it")
	j.unlock()

	j.lock(short)
	lease = g.lock(plainly, p.name)
	refusedTo(j)
	g.mine(p.name, "after Java tried to unlock what it had lost")
	g.unlock(lease)
}

// javaIsWokenByThreeZeros: `000` is 0 to Java's waiter, so that Go can tell it from
// Java's own message.
func javaIsWokenByThreeZeros(p *pair) {
	j := p.redisson.thread(p.T, "waiter").lockOf("plain", p.name)
	g := p.golang()
	lease := g.lock(plainly, p.name, mortise.WithLease(minutes))
	w := j.startLock()
	p.waiting(1)
	p.rests(j.owner())
	p.site.must(p.T, "DEL", p.name)
	event := time.Now()
	p.site.publish(p.T, channelOf(p.name), "000")
	d, _ := j.await(w, event)
	p.figure("payload 000 to Java's lock", d)
	harness.CheckIsf(p, lease.Unlock(context.Background()), mortise.ErrLost, "Unlock of a lock that was deleted")
	j.unlock()
}

func readWriteIsAnotherKind(p *pair) {
	g := p.golang()
	for _, kind := range []string{"read", "write"} {
		j := p.redisson.thread(p.T, kind).lockOf(kind, p.name)
		j.lock(minutes)
		for _, k := range bothKinds {
			harness.CheckIsf(p, harness.Err(g.of(k.kind).Lock(context.Background(), p.name, in(long))), mortise.ErrWrongKind,
				"%s lock held, Lock of the %s kind", kind, k.java)
			harness.CheckIsf(p, harness.Err(g.of(k.kind).TryLock(context.Background(), p.name)), mortise.ErrWrongKind,
				"%s lock held, TryLock of the %s kind", kind, k.java)
		}
		s := g.inspect(p.name)
		harness.ErrorIf(p, !s.Held || s.Writing != (kind == "write"), "%s lock held, Inspect: %+v", kind, s)
		removed, err := g.ForceUnlock(context.Background(), p.name, "host/1/x:1") // of any kind, but it has another owner
		harness.ErrorIf(p, removed || err != nil, "%s lock held, ForceUnlock of another owner: %v, %v", kind, removed, err)
		j.held(kind + ", after Go tried")
		j.unlock()
	}
	g.unlock(g.lock(plainly, p.name))
}

// tokens rise whichever side takes the lock, and agree where both can read one.
func tokens(p *pair) {
	fenced := mortise.Fenced()
	g := p.golang()
	var threads []*rlock
	for _, name := range []string{"a", "b"} {
		threads = append(threads, p.redisson.thread(p.T, name).lockOf("fenced", p.name))
	}
	var all []int64
	for n := range 12 {
		j := threads[n%2]
		if n%3 == 0 {
			all = append(all, j.lock(minutes*time.Duration(n%2)))
			j.unlock()
			continue
		}
		lease := g.lock(fenced, p.name)
		token := lease.Token()
		if token == 0 || j.lastToken() != token {
			p.Errorf("Go has token %d, Java reads %d", token, j.lastToken())
		}
		all = append(all, token)
		g.unlock(lease)
		// A plain lock between leaves it alone, on both sides.
		plain := j.thread.lockOf("plain", p.name)
		plain.lock(minutes)
		plain.unlock()
		g.unlock(g.lock(plainly, p.name))
	}
	harness.ErrorIf(p, !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != len(all),
		"tokens do not rise: %v", all)

	// The counter is lost with the store: Go starts it above what was given out, for
	// Java too. (Where Java comes first it starts at 1: that is Redisson.)
	last := all[len(all)-1]
	p.site.must(p.T, "DEL", tokenKey(p.name))
	lease := g.lock(fenced, p.name)
	seeded := lease.Token()
	g.unlock(lease)
	next := threads[0].lock(minutes)
	threads[0].unlock()
	harness.ErrorIf(p, seeded <= last || next <= seeded,
		"tokens %d, then lost, then %d (Go), %d (Java)", last, seeded, next)
}

// tokensOfReentry: Redisson draws another token when it enters again, which makes its
// own outer one stale; ours keeps the token, and neither disturbs the other.
func tokensOfReentry(p *pair) {
	fenced := mortise.Fenced()
	g := p.golang()
	j := p.redisson.thread(p.T, "t").lockOf("fenced", p.name)

	first := j.lock(minutes)
	w := g.startLock(fenced, p.name)
	p.waiting(1)
	second := j.lock(minutes)
	harness.ErrorIf(p, second <= first, "Java entered again and got token %d after %d", second, first)
	j.unlock()
	s := g.inspect(p.name)
	harness.ErrorIf(p, s.Owner != j.owner() || s.Holds != 1, "Java unlocked one of two holds: %+v", s)
	j.unlock()
	_, outer := g.await(w, time.Now())
	third := outer.Token()
	harness.ErrorIf(p, third <= second, "Go got token %d after Java's %d", third, second)

	inner := g.again(fenced, outer)
	if token := inner.Token(); token != third || j.lastToken() != third {
		p.Errorf("Go entered again: token %d instead of %d, Java reads %d", token, third, j.lastToken())
	}
	plain := g.again(plainly, inner)
	if token := plain.Token(); token != third {
		p.Errorf("Go entered again by the plain kind: token %d instead of %d", token, third)
	}
	g.unlock(plain)
	g.unlock(inner)
	_, ok := j.tryLock(0, minutes)
	harness.FatalIf(p, ok, "Java got the lock that Go holds")
	g.unlock(outer)
	fourth := j.lockAndGetToken()
	harness.ErrorIf(p, fourth <= third, "Java got token %d after Go's %d", fourth, third)
	j.unlock()
}

// waiting awaits that so many clients listen for releases of p's name.
func (p *pair) waiting(n int) {
	p.Helper()
	defer func() {
		if p.Failed() {
			for _, server := range p.site.servers {
				p.Logf("%s:\n%v\n%s", server.Addr(), server.Must("PUBSUB", "CHANNELS"), server.Must("CLIENT", "LIST"))
			}
		}
	}()
	until(p.T, fmt.Sprintf("%d to listen for the release of %s", n, p.name), func() bool {
		return p.site.subscribers(p.T, p.name) == n
	})
}

// rests awaits that a waiter that has just begun to wait has tried twice: at first, and
// after it began to listen. What it gets from then on was a message's doing.
func (p *pair) rests(owner string) {
	p.Helper()
	until(p.T, owner+" to have tried twice", func() bool { return p.site.tries(p.name, owner) >= 2 })
}

// quiet awaits that no client listens any more.
func (p *pair) quiet() { p.Helper(); p.waiting(0) }

// clean asserts that nothing of the test is left but what is known to stay: counters of tokens; what
// Go remembers of changes to counts, for two minutes, and of windows for Java, for one; a Go writer's claim, which
// expires; and markers that
// Java's unlock leaves for a while: Redisson 3.52 lets them expire, 4.7 deletes them.
func (p *pair) clean() {
	p.Helper()
	p.quiet()
	for _, key := range p.site.keys(p.T, p.name) {
		most := time.Duration(0)
		switch {
		case strings.HasPrefix(key, "redisson_lock_token:"):
			continue
		case strings.HasPrefix(key, "redisson_unlock_latch:"):
			most = 2 * time.Minute // four times the time it waits for a reply, and some
		case strings.HasPrefix(key, "mortise:1:once:"):
			most = 2 * time.Minute
		case strings.HasPrefix(key, "mortise:1:writer:"), strings.HasPrefix(key, "mortise:1:held:"):
			most = minutes
		case strings.HasPrefix(key, "mortise:1:next:") && strings.HasSuffix(key, "2:round"),
			strings.HasPrefix(key, "mortise:1:wake:") && strings.HasSuffix(key, ":round"):
			most = time.Minute
		case strings.HasPrefix(key, "mortise:1:next:") && strings.HasSuffix(key, "2:extra"):
			most = 250 * time.Millisecond
		case strings.HasPrefix(key, "mortise:1:next:") && strings.HasSuffix(key, "2:window"):
			most = 200 * time.Millisecond
		case strings.HasPrefix(key, "mortise:1:wake:") && !strings.HasSuffix(key, ":wants"): // Redisson's turn
			most = time.Second
		default:
			p.Errorf("the key %q is left", key)
			continue
		}
		left := p.site.pttl(p.T, key)
		harness.ErrorIf(p, left == -time.Millisecond || left > most, "%q has a time to live of %v", key, left)
	}
}

// callees: a lock that a Go service has entered under another is one that is held, to Java, until the
// last of them goes; a waiter of Java's is woken then.
func callees(p *pair) {
	a, b := p.golang(), p.golang()
	for _, kind := range []struct {
		java string
		kind mortise.Option
	}{{"plain", plainly}, {"fenced", mortise.Fenced()}, {"fair", mortise.Fair()}} {
		j := p.redisson.thread(p.T, "t").lockOf(kind.java, p.name)
		enter := func() (outer, inner *mortise.Lease) {
			p.Helper()
			outer = a.lock(kind.kind, p.name)
			held := delegation.FromContext(outer.Context())
			ctx := harness.Must(delegation.NewContext(context.Background(), b.Client, held...))(p)
			inner = harness.Must(b.of(kind.kind).Lock(ctx, p.name, in(long), mortise.WithLease(minutes)))(p)
			return outer, inner
		}
		for _, callerFirst := range []bool{true, false} {
			outer, inner := enter()
			_, ok := j.tryLock(0, minutes)
			harness.FatalIf(p, ok, "%s: Java got a lock that caller and callee hold", kind.java)
			w := j.startLock()
			if kind.java != "fair" {
				p.waiting(1)
				p.rests(j.owner())
			}
			last := inner
			if callerFirst {
				a.unlock(outer)
			} else {
				b.unlock(inner)
				last = outer
			}
			select {
			case <-w.done:
				p.Fatalf("%s: Java got a lock that one of two still holds", kind.java)
			case <-time.After(200 * time.Millisecond): // that nothing comes is the subject
			}
			event := time.Now()
			harness.OK(p, last.Unlock(context.Background()))
			d, _ := j.await(w, event)
			p.figure("the last of caller and callee to Java's "+kind.java+" lock", d)
			j.unlock()
		}

		outer, inner := enter()
		harness.ErrorIf(p, !j.forceUnlock(), "%s: Java's forceUnlock found no lock", kind.java)
		for _, l := range []*mortise.Lease{inner, outer} {
			err := l.Unlock(context.Background())
			harness.ErrorIf(p, err == nil, "%s: a hold outlived Java's forceUnlock", kind.java)
		}
		j.lock(minutes)
		j.unlock()
	}
}
