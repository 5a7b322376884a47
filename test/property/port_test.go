package property

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// answer is what an operation came to, of whatever operation.
type answer struct {
	err       string // see verdict
	yes       bool   // granted, held, done
	remaining time.Duration
	owner     string
	holds     int
	token     int64
}

func (a answer) String() string {
	return fmt.Sprintf("{%s yes=%v remaining=%v owner=%q holds=%d token=%d}",
		a.err, a.yes, a.remaining, a.owner, a.holds, a.token)
}

// agrees compares all but tokens, which have an order of their own in each store.
func (a answer) agrees(b answer) bool {
	return a.err == b.err && a.yes == b.yes && alike(a.remaining, b.remaining) &&
		a.owner == b.owner && a.holds == b.holds && (a.token != 0) == (b.token != 0)
}

// machine is one sequence of operations on the port.
type machine struct {
	worlds []*opened // the first is the model
	names  []string
	short  int                      // leases that may yet be waited out
	tokens map[string]int64         // by key: the last token
	heard  [sessions]map[string]int // releases that a watching session must have heard
	base   [sessions]map[string][]int
}

var (
	owners = rapid.SampledFrom([]string{"c1:1", "c1:2", "c2:1", "uuid:77", "0", "Ω \x00\n:9"})
	leases = rapid.SampledFrom([]time.Duration{30 * time.Second, 50 * time.Second, 70 * time.Second, 90 * time.Second})
	which  = rapid.IntRange(0, sessions-1)
)

func (m *machine) name(t *rapid.T) string { return rapid.SampledFrom(m.names).Draw(t, "name") }

// each runs an operation in every world and compares what came of it.
func (m *machine) each(t *rapid.T, name, what string, op func(*opened) answer) answer {
	return m.eachWith(t, name, what, false, op)
}

// eachWith: where stale is true, the operation may be refused for a moment by what
// a session believes to know; it is repeated until it is not.
func (m *machine) eachWith(t *rapid.T, name, what string, stale bool, op func(*opened) answer) answer {
	t.Helper()
	want := op(m.worlds[0])
	t.Logf("%.40q: %s: %v", name, what, want)
	for _, w := range m.worlds[1:] {
		var got answer
		w.again(func() bool {
			got = op(w)
			return !stale || got.yes || got.agrees(want)
		})
		if !got.agrees(want) {
			t.Fatalf("%.40q: %s: %s answers %v, %s answers %v", name, what, m.worlds[0].label, want, w.label, got)
		}
		m.rising(t, name, w, got)
	}
	m.rising(t, name, m.worlds[0], want)
	return want
}

// rising checks that a name's tokens do.
func (m *machine) rising(t *rapid.T, name string, w *opened, a answer) {
	if a.token == 0 {
		return
	}
	last := m.tokens[w.key(name)]
	harness.FatalIf(t, a.token <= last, "%.40q: %s gave token %d after %d", name, w.label, a.token, last)
	m.tokens[w.key(name)] = a.token
}

func (m *machine) acquire(t *rapid.T) {
	name, owner, lease, i := m.name(t), owners.Draw(t, "owner"), leases.Draw(t, "lease"), which.Draw(t, "session")
	fenced := rapid.Bool().Draw(t, "fenced")
	// A holder does not acquire again with what a session believes to know: it would
	// be refused because of itself, and mortise never asks that.
	rec, _ := m.worlds[0].inspect(0, name)
	cached := rapid.Bool().Draw(t, "cached") && rec.Owner != owner
	what := fmt.Sprintf("Acquire by %q at %d for %v fenced=%v cached=%v", owner, i, lease, fenced, cached)
	m.eachWith(t, name, what, cached, func(w *opened) answer {
		return acquire(w, i, name, owner, lease, fenced, cached)
	})
}

func acquire(w *opened, i int, name, owner string, lease time.Duration, fenced, cached bool) answer {
	r, err := w.port[i].Acquire(context.Background(), anykind.AcquireRequest{
		Name: w.key(name), Owner: owner, Lease: lease, Fenced: fenced, Unasked: cached,
	})
	return answer{err: verdict(err), yes: r.Granted, remaining: r.Remaining, token: r.Token}
}

func (m *machine) reenter(t *rapid.T) {
	name, owner, lease, i := m.name(t), owners.Draw(t, "owner"), leases.Draw(t, "lease"), which.Draw(t, "session")
	holds, fenced := rapid.IntRange(2, 5).Draw(t, "holds"), rapid.Bool().Draw(t, "fenced")
	what := fmt.Sprintf("Reenter by %q at %d for %v, holds %d fenced=%v", owner, i, lease, holds, fenced)
	m.each(t, name, what, func(w *opened) answer {
		r, err := w.port[i].SetHolds(context.Background(), anykind.HoldsRequest{
			Name: w.key(name), Owner: owner, Holds: holds, Lease: lease, Fenced: fenced,
		})
		return w.leniently(answer{err: verdict(err), yes: r.Held, token: r.Token}, name)
	})
}

func (m *machine) release(t *rapid.T) {
	name, owner, i := m.name(t), owners.Draw(t, "owner"), which.Draw(t, "session")
	if rapid.IntRange(0, 2).Draw(t, "by its holder") == 0 {
		rec, _ := m.worlds[0].inspect(0, name)
		if rec.Owner != "" {
			owner = rec.Owner
		}
	}
	keep := rapid.SampledFrom([]int{0, 0, 0, 1, 2, 4}).Draw(t, "keep")
	did := m.each(t, name, fmt.Sprintf("Release by %q at %d, keep %d", owner, i, keep), func(w *opened) answer {
		r, err := w.port[i].Release(context.Background(), anykind.ReleaseRequest{Name: w.key(name), Owner: owner, Keep: keep})
		return w.leniently(answer{err: verdict(err), yes: r.Held}, name)
	})
	if did.yes && keep == 0 {
		m.told(t, name)
	}
}

// leniently: that an owner holds nothing, or that the key is no such lock, are both
// right answers about a read-write lock; the other data has one answer only.
func (w *opened) leniently(a answer, name string) answer {
	if a.err == "ok" && !a.yes {
		if _, err := w.inspect(0, name); err != nil && strings.Contains(err.Error(), "read-write") {
			a.err = verdict(backend.ErrWrongKind)
		}
	}
	return a
}

func (m *machine) renew(t *rapid.T) {
	i, n := which.Draw(t, "session"), rapid.IntRange(1, 4).Draw(t, "batch")
	var in []anykind.RenewRequest
	for range n {
		r := anykind.RenewRequest{Name: m.name(t), Owner: owners.Draw(t, "owner"), Lease: leases.Draw(t, "lease")}
		if rapid.IntRange(0, 3).Draw(t, "only ask") == 0 {
			r.Lease = 0
		}
		in = append(in, r)
	}
	t.Logf("Renew at %d: %v", i, in)
	var want []backend.RenewResult
	for _, w := range m.worlds {
		there := append([]anykind.RenewRequest(nil), in...)
		for j := range there {
			there[j].Name = w.key(there[j].Name)
		}
		out := make([]backend.RenewResult, n)
		w.port[i].Renew(context.Background(), there, out)
		if want == nil {
			want = out
		}
		for j := range out {
			if out[j].Held != want[j].Held || verdict(out[j].Err) != verdict(want[j].Err) {
				t.Fatalf("Renew %v: %s answers %v, %s answers %v", in[j], m.worlds[0].label, want[j], w.label, out[j])
			}
		}
	}
}

func (m *machine) forceRelease(t *rapid.T) {
	name, i := m.name(t), which.Draw(t, "session")
	did := m.each(t, name, fmt.Sprintf("ForceRelease at %d", i), func(w *opened) answer {
		yes, err := w.port[i].ForceRelease(context.Background(), topic(w.key(name)))
		return answer{err: verdict(err), yes: yes}
	})
	if did.yes {
		m.told(t, name)
	}
}

func (m *machine) remove(t *rapid.T) {
	name := m.name(t)
	t.Logf("%.40q: deleted by an operator", name)
	for _, w := range m.worlds {
		w.store.remove(w.key(name))
	}
}

func (m *machine) occupy(t *rapid.T) {
	name, what := m.name(t), rapid.SampledFrom([]string{"string", "list", "rwlock"}).Draw(t, "data")
	t.Logf("%.40q: occupied by a %s", name, what)
	for _, w := range m.worlds {
		w.store.occupy(w.key(name), what)
	}
}

// expire takes a short lease and waits until it is over everywhere. Its owner is
// then one of those that held the lock once.
func (m *machine) expire(t *rapid.T) {
	const lease = 60 * time.Millisecond
	name, owner, i := m.name(t), owners.Draw(t, "owner"), which.Draw(t, "session")
	if rec, err := m.worlds[0].inspect(0, name); m.short == 0 || err != nil || rec.Held {
		return // held, or enough was waited for
	}
	m.short--
	sent := map[*opened]time.Time{}
	m.each(t, name, fmt.Sprintf("Acquire by %q at %d for %v, and wait it out", owner, i, lease), func(w *opened) answer {
		sent[w] = time.Now()
		return acquire(w, i, name, owner, lease, false, false)
	})
	for _, w := range m.worlds {
		await(t, w.label+": a lease is over", func() bool {
			rec, err := w.inspect(i, name)
			harness.FatalIf(t, err != nil, "%s: Inspect: %v", w.label, err)
			if lived := time.Since(sent[w]); !rec.Held && lived < lease-time.Millisecond {
				t.Fatalf("%s: a lease of %v was over after %v", w.label, lease, lived)
			}
			return !rec.Held
		})
	}
}

// watch has a session told of a name's releases, or no longer.
func (m *machine) watch(t *rapid.T) {
	name, i := m.name(t), which.Draw(t, "session")
	if _, watched := m.heard[i][name]; watched {
		m.silence(t, i, name)
		return
	}
	t.Logf("%.40q: Watch at %d", name, i)
	m.heard[i][name], m.base[i][name] = 0, make([]int, len(m.worlds))
	for n, w := range m.worlds {
		e, key := w.ears[i], w.key(name)
		before := e.count(e.watching, topic(key))
		w.port[i].Subscribe(topic(key))
		await(t, w.label+": Watching is told", func() bool { return e.count(e.watching, topic(key)) > before })
		m.base[i][name][n] = e.count(e.released, topic(key))
	}
}

// silence ends a watch. A last release proves that no more was heard than happened.
func (m *machine) silence(t *rapid.T, i int, name string) {
	for _, w := range m.worlds {
		w.store.remove(w.key(name))
		a := acquire(w, i, name, "last", time.Minute, false, false)
		harness.FatalIf(t, !a.yes, "%.40q: %s: Acquire of a deleted name: %v", name, w.label, a)
		r, err := w.port[i].Release(context.Background(), anykind.ReleaseRequest{Name: w.key(name), Owner: "last"})
		harness.FatalIf(t, err != nil || !r.Held, "%.40q: %s: Release: %v, %v", name, w.label, r, err)
	}
	m.told(t, name)
	t.Logf("%.40q: Unwatch at %d", name, i)
	for n, w := range m.worlds {
		e := w.ears[i]
		if got := e.count(e.released, topic(w.key(name))) - m.base[i][name][n]; got != m.heard[i][name] {
			t.Fatalf("%.40q: %s: session %d heard of %d releases, there were %d", name, w.label, i, got, m.heard[i][name])
		}
		w.port[i].Unsubscribe(topic(w.key(name)))
	}
	delete(m.heard[i], name)
}

// told awaits that all sessions that watch a name were told of one more release.
func (m *machine) told(t *rapid.T, name string) {
	for i := range sessions {
		if _, watched := m.heard[i][name]; !watched {
			continue
		}
		m.heard[i][name]++
		for n, w := range m.worlds {
			e := w.ears[i]
			await(t, fmt.Sprintf("%.40q: %s: session %d is told of the release", name, w.label, i), func() bool {
				return e.count(e.released, topic(w.key(name)))-m.base[i][name][n] >= m.heard[i][name]
			})
		}
	}
}

// inspectAll compares the records of all names, after each operation.
func (m *machine) inspectAll(t *rapid.T) {
	for n, name := range m.names {
		m.each(t, name, "Inspect", func(w *opened) answer {
			r, err := w.inspect(n%sessions, name)
			return answer{err: verdict(err), yes: r.Held, owner: r.Owner, holds: r.Holds, remaining: r.Remaining}
		})
	}
}

// inspect asks session i for the record of a name.
func (w *opened) inspect(i int, name string) (backend.Record, error) {
	return w.port[i].Inspect(context.Background(), topic(w.key(name)))
}

// told counts, by topic, what the first session heard of the releases of a name.
func (w *opened) told(name string) map[backend.Topic]int {
	return w.ears[0].of(w.ears[0].released, w.key(name))
}

// watched counts, by topic, what the first session watches of a name.
func (w *opened) watched(name string) map[backend.Topic]int {
	return w.ears[0].of(w.ears[0].watching, w.key(name))
}

func topic(name string) backend.Topic { return backend.Topic{Kind: backend.KindLock, Name: name} }

func TestEveryStoreAnswersAtThePortAsTheModelDoes(t *testing.T) {
	worlds := openPorts(t)
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{worlds: worlds, short: 1, tokens: map[string]int64{}}
		unique := fresh()
		for _, name := range []string{"a", "{tenant}:b ü\n", strings.Repeat("long", 300)} {
			m.names = append(m.names, unique+name)
		}
		for i := range sessions {
			m.heard[i], m.base[i] = map[string]int{}, map[string][]int{}
		}
		defer func() {
			for i := range sessions {
				for name := range m.heard[i] {
					for _, w := range worlds {
						w.port[i].Unsubscribe(topic(w.key(name)))
					}
				}
			}
		}()
		repeat(t, map[string]func(*rapid.T){
			"acquire": m.acquire, "acquire too": m.acquire, "reenter": m.reenter, "release": m.release, "release too": m.release,
			"renew": m.renew, "force release": m.forceRelease, "delete": m.remove, "occupy": m.occupy,
			"expire": m.expire, "watch": m.watch, "": m.inspectAll,
		})
		for i := range sessions {
			for _, name := range m.names {
				if _, watched := m.heard[i][name]; watched {
					m.silence(t, i, name)
				}
			}
		}
	})
}

// A store does not tell a session of its own writes (NOLOOP, where it caches): what it
// believes to know must follow from what it did itself.
func TestASessionKnowsWhatItDidItself(t *testing.T) {
	for _, w := range openPorts(t) {
		t.Run(w.label, func(t *testing.T) {
			ctx, x, name := t.Context(), w.port[0], fresh()+"n"
			left := func(after string, want time.Duration) {
				t.Helper()
				acquire(w, 0, name, "c1:2", time.Minute, false, false) // refused: now the session has seen it
				if a := acquire(w, 0, name, "c1:2", time.Minute, false, true); a.err != "ok" || a.yes || !alike(a.remaining, want) {
					t.Errorf("after %s: %v, want it refused for %v", after, a, want)
				}
			}
			acquire(w, 0, name, "c1:1", 20*time.Second, false, false)
			left("Acquire", 20*time.Second)
			out := make([]backend.RenewResult, 1)
			x.Renew(ctx, []anykind.RenewRequest{{Name: w.key(name), Owner: "c1:1", Lease: 40 * time.Second}}, out)
			if a := acquire(w, 0, name, "c1:2", time.Minute, false, true); a.yes || !alike(a.remaining, 40*time.Second) {
				t.Errorf("after Renew: %v, want it refused for 40s", a)
			}
			left("Renew", 40*time.Second)
			x.SetHolds(ctx, anykind.HoldsRequest{Name: w.key(name), Owner: "c1:1", Holds: 2, Lease: 60 * time.Second})
			if a := acquire(w, 0, name, "c1:2", time.Minute, false, true); a.yes || !alike(a.remaining, 60*time.Second) {
				t.Errorf("after Reenter: %v, want it refused for 60s", a)
			}
			left("Reenter", 60*time.Second)
			x.Release(ctx, anykind.ReleaseRequest{Name: w.key(name), Owner: "c1:1"})
			a := acquire(w, 0, name, "c1:2", time.Minute, false, true)
			harness.ErrorIf(t, !a.yes, "after Release: %v, want it granted", a)
		})
	}
}

var fairOwners = []string{"c1:1", "c1:2", "c2:1", "uuid:77", "Ω \x00\n:9"}

// Which owner is granted the lock, which has a place, and which is told of what is the same in
// every store, after whatever sequence of operations.
func TestEveryStoreKeepsTheQueueOfAFairLockAsTheModelDoes(t *testing.T) {
	// One session of each listens for every owner's turn, so that no owner is taken for dead: what
	// happens then depends on time.
	worlds := openPorts(t)
	ctx := context.Background()
	rapid.Check(t, func(t *rapid.T) {
		name := fresh() + rapid.SampledFrom([]string{"n", "{tenant}:n"}).Draw(t, "name")
		topics := func(w *opened) (all []backend.Topic) {
			for _, o := range fairOwners {
				all = append(all, backend.Topic{Kind: backend.KindFair, Name: w.key(name), Owner: o})
			}
			return append(all, topic(w.key(name)))
		}
		for _, w := range worlds {
			for _, x := range topics(w) {
				w.port[0].Subscribe(x)
			}
			await(t, w.label+": all is listened for", func() bool {
				return len(w.watched(name)) == len(fairOwners)+1
			})
		}
		defer func() {
			for _, w := range worlds {
				for _, x := range topics(w) {
					w.port[0].Unsubscribe(x)
				}
			}
		}()
		each := func(t *rapid.T, what string, op func(w *opened) string) {
			t.Helper()
			want := op(worlds[0])
			t.Logf("%s: %s", what, want)
			for _, w := range worlds[1:] {
				if got := op(w); got != want {
					t.Fatalf("%s: %s answers %s, %s answers %s", what, worlds[0].label, want, w.label, got)
				}
			}
		}
		owner := func(t *rapid.T) string { return rapid.SampledFrom(fairOwners).Draw(t, "owner") }
		// holderOr is the holder two times of three, so that locks are released at all.
		holderOr := func(t *rapid.T) string {
			if rapid.IntRange(0, 2).Draw(t, "by whom") > 0 {
				if rec, err := worlds[0].inspect(0, name); err == nil && rec.Held {
					return rec.Owner
				}
			}
			return owner(t)
		}
		repeat(t, map[string]func(*rapid.T){
			"ask": func(t *rapid.T) {
				q := anykind.AcquireRequest{Kind: backend.KindFair, Owner: owner(t), Lease: time.Minute}
				q.Wait = oneOf(t, "wait", []time.Duration{0, 5 * time.Minute, time.Hour})
				q.Fenced = rapid.Bool().Draw(t, "fenced")
				each(t, fmt.Sprintf("%q asks, wait %v", q.Owner, q.Wait), func(w *opened) string {
					q := q
					q.Name = w.key(name)
					r, err := w.port[0].Acquire(ctx, q)
					return fmt.Sprint(verdict(err), r.Granted, r.Remaining > 0, r.Token > 0, q.Wait > 0 && r.AskAfter > r.Remaining)
				})
			},
			"ask plainly": func(t *rapid.T) {
				o := owner(t)
				each(t, fmt.Sprintf("%q asks plainly", o), func(w *opened) string {
					r, err := w.port[0].Acquire(ctx, anykind.AcquireRequest{
						Name: w.key(name), Owner: o, Lease: time.Minute,
					})
					return fmt.Sprint(verdict(err), r.Granted, r.Remaining > 0)
				})
			},
			"release": func(t *rapid.T) {
				o, keep := holderOr(t), oneOf(t, "keep", []int{0, 0, 0, 2})
				kind := oneOf(t, "kind", []backend.Kind{backend.KindFair, backend.KindFair, backend.KindLock})
				each(t, fmt.Sprintf("%q releases as kind %d, keep %d", o, kind, keep), func(w *opened) string {
					r, err := w.port[0].Release(ctx, anykind.ReleaseRequest{
						Kind: kind, Name: w.key(name), Owner: o, Keep: keep,
					})
					return fmt.Sprint(verdict(err), r)
				})
			},
			"leave": func(t *rapid.T) {
				o := owner(t)
				each(t, fmt.Sprintf("%q leaves", o), func(w *opened) string {
					q := backend.LeaveRequest{Name: w.key(name), Owner: o, Wait: 5 * time.Minute}
					r, err := w.port[0].Capabilities().Fair.Leave(ctx, q)
					return fmt.Sprint(verdict(err), r)
				})
			},
			"force": func(t *rapid.T) {
				each(t, "ForceRelease", func(w *opened) string {
					ok, err := w.port[0].ForceRelease(ctx, topic(w.key(name)))
					return fmt.Sprint(verdict(err), ok)
				})
			},
			"delete": func(t *rapid.T) {
				t.Log("deleted by an operator")
				for _, w := range worlds {
					w.remove(w.key(name))
				}
			},
			"": func(t *rapid.T) {
				each(t, "Inspect", func(w *opened) string {
					r, err := w.inspect(0, name)
					return fmt.Sprint(verdict(err), r.Owner, r.Holds)
				})
				for _, w := range worlds[1:] {
					await(t, w.label+": the same are told as in the model", func() bool {
						return maps.Equal(worlds[0].told(name), w.told(name))
					})
				}
			},
		})
		// The waiters that are left are served in one order.
		for range fairOwners {
			each(t, "whose turn it is", func(w *opened) string {
				if rec, _ := w.inspect(0, name); rec.Held {
					q := anykind.ReleaseRequest{Kind: backend.KindFair, Name: w.key(name), Owner: rec.Owner}
					w.port[0].Release(ctx, q)
				}
				for _, o := range fairOwners {
					q := anykind.AcquireRequest{Kind: backend.KindFair, Name: w.key(name), Owner: o, Lease: time.Minute}
					if r, _ := w.port[0].Acquire(ctx, q); r.Granted {
						return o
					}
				}
				return "nobody's"
			})
		}
	})
}
