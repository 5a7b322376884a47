package property

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/semaphore"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// family is a kind of locks as the API offers it: the two sides of a read-write lock, or
// kinds that share a record and exclude each other.
type family struct {
	lockers func(t *testing.T, c *mortise.Client) []mortise.Locker
	kinds   [][]mortise.Option // of each locker; nil for a read-write lock
	topic   backend.Kind
}

var allKinds = [][]mortise.Option{
	{},
	{mortise.Fenced()},
	{mortise.NonReentrant()},
	{mortise.Polling(time.Millisecond)},
	{mortise.Fair()},
	{mortise.Fair(), mortise.Fenced(), mortise.NonReentrant()},
}

const reads, writes = 0, 1 // the lockers of a read-write lock

var families = map[string]family{
	"lock": {
		lockers: func(t *testing.T, c *mortise.Client) (all []mortise.Locker) {
			for _, k := range allKinds {
				l := c.With(k...)
				all = append(all, l)
			}
			return all
		},
		kinds: allKinds,
		topic: backend.KindLock,
	},
	"rw": {
		lockers: func(_ *testing.T, c *mortise.Client) []mortise.Locker {
			r, w := c.RW().Read, c.RW().Write
			return []mortise.Locker{r, w}
		},
		topic: backend.KindWrite,
	},
}

// party is one lease, in every store, and what the contract knows of it.
type party struct {
	client int
	shared bool // it reads
	live   bool
	under  *party // whose context it was locked with
	outer  *party // what it was entered under
	in     []*mortise.Lease
}

// of is the innermost of a client's leases that p's context carries, p itself included: a
// context that is handed on to another client still carries those of the first.
func (p *party) of(client int) *party {
	for p != nil && p.client != client {
		p = p.under
	}
	return p
}

// chain tells whether p is q or was entered under it.
func (p *party) chain(q *party) bool {
	for ; p != nil; p = p.outer {
		if p == q {
			return true
		}
	}
	return false
}

// writer is the innermost live hold of p's chain that excludes others.
func (p *party) writer() *party {
	for ; p != nil; p = p.outer {
		if !p.shared && p.live {
			return p
		}
	}
	return nil
}

type company struct {
	family  family
	worlds  []*store
	clients [][]*mortise.Client
	lockers [][][]mortise.Locker // by world, client, kind
	name    string
	all     []*party
	forced  bool // it was unlocked by force while it was held
}

func (c *company) alive(shared bool) (some []*party) {
	for _, p := range c.all {
		if p.live && p.shared == shared {
			some = append(some, p)
		}
	}
	return some
}

// outcome is what the contract has for a TryLock: the verdicts that are right.
func (c *company) outcome(from *party, kind int) []string {
	const granted, refused, invalid = "ok", "NotAcquired", "Invalid"
	holders, readers := c.alive(false), c.alive(true)
	shared := c.family.kinds == nil && kind == reads
	if from == nil || !from.live {
		if len(holders) > 0 || !shared && len(readers) > 0 {
			return []string{refused}
		}
		return []string{granted}
	}
	if shared {
		for _, w := range holders {
			if !from.chain(w) { // it writes further in: an outer hold's context takes turns
				return []string{granted, refused}
			}
		}
		if from.shared || from == holders[len(holders)-1] {
			return []string{granted}
		}
		return []string{granted, refused}
	}
	if c.family.kinds != nil && slices.Contains(c.family.kinds[kind], mortise.NonReentrant()) {
		return []string{invalid}
	}
	w := from.writer()
	switch {
	case w == nil:
		return []string{invalid} // no upgrade
	case from == holders[len(holders)-1] && len(readers) == 0:
		return []string{granted}
	case c.family.kinds != nil:
		return []string{refused}
	}
	return []string{granted, refused}
}

func (c *company) lock(t *rapid.T) {
	client := rapid.IntRange(0, clients-1).Draw(t, "client")
	kind := rapid.IntRange(0, len(c.lockers[0][0])-1).Draw(t, "kind")
	var from *party
	if len(c.all) > 0 && rapid.IntRange(0, 2).Draw(t, "context") > 0 {
		k := rapid.IntRange(0, len(c.all)-1).Draw(t, "lease")
		from = c.all[k]
		if rapid.IntRange(0, 4).Draw(t, "of its own") > 0 {
			client = from.client
		}
		t.Logf("with the context of lease %d", k)
	}
	own := from.of(client)
	right := c.outcome(own, kind)
	wait := len(right) == 1 && right[0] != "NotAcquired" && rapid.IntRange(0, 2).Draw(t, "wait") == 0
	var opts []mortise.Option
	if rapid.Bool().Draw(t, "long lease") {
		opts = append(opts, mortise.WithLease(long))
	}
	p := &party{
		client: client,
		under:  from,
		shared: c.family.kinds == nil && kind == reads,
		live:   true,
		in:     make([]*mortise.Lease, len(c.worlds)),
	}
	var came string
	for n, w := range c.worlds {
		ctx := context.Background()
		if from != nil {
			ctx = context.WithoutCancel(from.in[n].Context())
		}
		try := func() (got string) {
			var err error
			if l := c.lockers[n][client][kind]; wait {
				p.in[n], err = l.Lock(ctx, w.key(c.name), append(opts, mortise.WithWait(soon))...)
			} else {
				p.in[n], err = l.TryLock(ctx, w.key(c.name), opts...)
			}
			return verdict(err)
		}
		var got string
		w.again(func() bool {
			got = try()
			return got != "NotAcquired" || came != "ok"
		})
		if n == 0 {
			came = got
			t.Logf("lock %d (wait=%v) by %d: %s", kind, wait, client, got)
		}
		if got != came || got != right[0] && got != right[len(right)-1] {
			t.Fatalf("lock %d (wait=%v) by client %d: the contract has %v, %s %s, %s %s",
				kind, wait, client, right, c.worlds[0].label, came, w.label, got)
		}
		if got == "ok" && c.family.kinds != nil {
			// An owner that was fenced once need not be again.
			tok := p.in[n].Token()
			harness.FatalIf(t, slices.Contains(c.family.kinds[kind], mortise.Fenced()) && tok <= 0,
				"%s: token %d", w.label, tok)
		}
	}
	if came != "ok" {
		return
	}
	if own != nil && own.live {
		p.outer = own
	}
	// No other is in: whatever was right above, this is the rule.
	for _, other := range c.all {
		harness.FatalIf(t, other.live && !(p.shared && other.shared) && !p.chain(other) && !sameRoot(p, other),
			"two are in that exclude each other")
	}
	c.all = append(c.all, p)
	t.Logf("that is lease %d", len(c.all)-1)
}

func sameRoot(p, q *party) bool {
	for p.outer != nil {
		p = p.outer
	}
	return q.chain(p)
}

func (c *company) unlock(t *rapid.T) {
	if len(c.all) == 0 {
		return
	}
	k := rapid.IntRange(0, len(c.all)-1).Draw(t, "lease")
	p := c.all[k]
	t.Logf("unlock of lease %d", k)
	for n, w := range c.worlds {
		err := p.in[n].Unlock(context.Background())
		ended := errors.Is(err, mortise.ErrLost) || errors.Is(err, mortise.ErrReleased)
		harness.FatalIf(t, p.live != (err == nil) || !p.live && !ended,
			"%s: Unlock of lease %d, live=%v: %v", w.label, k, p.live, err)
	}
	p.live = false
}

func (c *company) forceUnlock(t *rapid.T) {
	held := len(c.alive(false))+len(c.alive(true)) > 0
	if held && c.forced {
		return // readers take up to a second to notice: once is enough
	}
	c.forced = c.forced || held
	client := rapid.IntRange(0, clients-1).Draw(t, "client")
	t.Log("force unlock")
	for n, w := range c.worlds {
		did, err := c.clients[n][client].ForceUnlock(context.Background(), w.key(c.name), "")
		harness.FatalIf(t, err != nil || did != held, "%s: forced %v, %v; held %v", w.label, did, err, held)
		if !w.tells {
			w.hintOf(c.family.topic, c.name)
		}
	}
	for n, w := range c.worlds {
		for k, p := range c.all {
			if p.live {
				await(t, fmt.Sprintf("%s: lease %d is lost", w.label, k), func() bool {
					return errors.Is(p.in[n].Err(), mortise.ErrLost)
				})
			}
		}
	}
	for _, p := range c.all {
		p.live = false
	}
}

func (c *company) look(t *rapid.T) {
	holders, readers := c.alive(false), c.alive(true)
	for n, w := range c.worlds {
		for k, p := range c.all {
			err := p.in[n].Err()
			harness.FatalIf(t, p.live != (err == nil), "%s: lease %d, live=%v: %v", w.label, k, p.live, err)
		}
		for i, x := range c.clients[n] {
			s, err := x.Inspect(context.Background(), w.key(c.name))
			writing := c.family.kinds == nil && len(holders) > 0
			if err != nil || s.Held != (len(holders)+len(readers) > 0) || s.Readers != len(readers) || s.Writing != writing {
				t.Fatalf("%s: %+v, %v; %d hold it and %d read", w.label, s, err, len(holders), len(readers))
			}
			if len(holders) > 0 && (s.Holds != len(holders) || s.Mine != (holders[0].client == i)) {
				t.Fatalf("%s: client %d: %+v; held %d times by %d", w.label, i, s, len(holders), holders[0].client)
			}
		}
	}
}

func TestEveryLockAnswersThroughAClientAsTheContractSays(t *testing.T) {
	for label, f := range families {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			c := company{family: f, worlds: openStores(t)}
			for _, w := range c.worlds {
				var cs []*mortise.Client
				var ls [][]mortise.Locker
				for range clients {
					x := newClient(t, w)
					cs, ls = append(cs, x), append(ls, f.lockers(t, x))
				}
				c.clients, c.lockers = append(c.clients, cs), append(c.lockers, ls)
			}
			rapid.Check(t, func(t *rapid.T) {
				c := c
				c.name = fresh() + rapid.SampledFrom([]string{"n", "{tenant}:ü\n"}).Draw(t, "name")
				defer func() {
					for _, p := range c.all {
						for _, l := range p.in {
							l.Unlock(context.Background())
						}
					}
				}()
				repeat(t, actions{
					"lock": c.lock, "lock too": c.lock, "lock three": c.lock,
					"unlock": c.unlock, "unlock too": c.unlock,
					"force": c.forceUnlock, "": c.look,
				})
			})
		})
	}
}

var countKinds = []backend.Kind{backend.KindCountingSemaphore, backend.KindSemaphore, backend.KindCountDownLatch}

// counted is what semaphores of both kinds have.
type counted interface {
	TrySetPermits(ctx context.Context, n int) (bool, error)
	AddPermits(ctx context.Context, n int) error
	Available(ctx context.Context) (int, error)
}

// at is a client of one of the worlds, and a name there.
type at struct {
	*mortise.Client
	world int
	name  string
}

// Counts through the API; the contract is that of the port.
func TestEveryCountAnswersThroughAClientAsTheContractSays(t *testing.T) {
	ctx := context.Background()
	worlds := openStores(t)
	var cs [][]*mortise.Client
	for _, w := range worlds {
		var some []*mortise.Client
		for range clients {
			some = append(some, newClient(t, w))
		}
		cs = append(cs, some)
	}
	rapid.Check(t, func(t *rapid.T) {
		k, base := newContract(), fresh()
		each := func(t *rapid.T, what, want string, op func(at) string) {
			t.Helper()
			i := rapid.IntRange(0, clients-1).Draw(t, "client")
			t.Logf("%s by %d: %s", what, i, want)
			for n, w := range worlds {
				got := op(at{cs[n][i], n, w.key(base)})
				harness.FatalIf(t, got != want, "%s: the contract has %s, %s %s", what, want, w.label, got)
			}
		}
		kind := oneOf(t, "kind", countKinds)
		request := func(n int) backend.CountRequest {
			return backend.CountRequest{Topic: backend.Topic{Kind: kind}, ID: fresh(), N: int64(n)}
		}
		says := func(r reply) string { return fmt.Sprint(r.yes, " ", r.err) }
		said := func(yes bool, err error) string { return fmt.Sprint(yes, " ", verdict(err)) }
		number := func(n int64) string { return fmt.Sprint(n, " ok") }
		var out [][]*semaphore.Permit // by acquisition and world
		ops := actions{}
		some := func(t *rapid.T) int { return rapid.IntRange(1, 4).Draw(t, "permits") }
		took := func(yes bool) string {
			if yes {
				return "ok"
			}
			return "NotAcquired"
		}
		var available func(c at) (int64, error)
		semaphores := func(of func(c at) counted) {
			ops["set"] = func(t *rapid.T) {
				n := rapid.IntRange(0, 4).Draw(t, "permits")
				each(t, fmt.Sprint("set ", n), says(k.setCount(request(n))), func(c at) string {
					return said(of(c).TrySetPermits(ctx, n))
				})
			}
			ops["add"] = func(t *rapid.T) {
				n := rapid.SampledFrom([]int{1, 2, -1, -3}).Draw(t, "permits")
				k.addCount(request(n))
				each(t, fmt.Sprint("add ", n), "ok", func(c at) string { return verdict(of(c).AddPermits(ctx, n)) })
			}
			available = func(c at) (int64, error) {
				n, err := of(c).Available(ctx)
				return int64(n), err
			}
		}
		switch kind {
		case backend.KindCountingSemaphore:
			semaphores(func(c at) counted { return semaphore.NewCounting(c.Client, c.name) })
			ops["acquire"] = func(t *rapid.T) {
				n := some(t)
				r := k.take(request(n))
				wait := r.yes && rapid.Bool().Draw(t, "wait")
				each(t, fmt.Sprint("acquire ", n), took(r.yes), func(c at) string {
					if wait {
						return verdict(semaphore.NewCounting(c.Client, c.name).Acquire(ctx, n))
					}
					return verdict(semaphore.NewCounting(c.Client, c.name).TryAcquire(ctx, n))
				})
			}
			ops["acquire too"] = ops["acquire"]
			ops["release"] = func(t *rapid.T) {
				n := some(t)
				k.addCount(request(n))
				each(t, fmt.Sprint("release ", n), "ok", func(c at) string {
					return verdict(semaphore.NewCounting(c.Client, c.name).Release(ctx, n))
				})
			}
			ops["drain"] = func(t *rapid.T) {
				each(t, "drain", number(k.drain(request(0)).n), func(c at) string {
					n, err := semaphore.NewCounting(c.Client, c.name).Drain(ctx)
					return fmt.Sprint(n, " ", verdict(err))
				})
			}
		case backend.KindSemaphore:
			semaphores(func(c at) counted { return semaphore.New(c.Client, c.name, 0) })
			ops["acquire"] = func(t *rapid.T) {
				q := anykind.AcquireRequest{Owner: fmt.Sprint(len(out)), Lease: long}
				r := k.permit(q)
				got := make([]*semaphore.Permit, len(worlds))
				each(t, "acquire", took(r.yes), func(c at) string {
					var err error
					got[c.world], err = semaphore.New(c.Client, c.name, 0).TryAcquire(ctx, 1, mortise.WithLease(long))
					return verdict(err)
				})
				if r.yes {
					out = append(out, got)
				}
			}
			ops["acquire too"] = ops["acquire"]
			release := func(byID bool) func(*rapid.T) {
				return func(t *rapid.T) {
					if len(out) == 0 {
						return
					}
					i := rapid.IntRange(0, len(out)-1).Draw(t, "permit")
					want := "ok"
					if !k.returned(anykind.ReleaseRequest{Owner: fmt.Sprint(i)}).yes {
						want = "NotHeld"
					}
					what := fmt.Sprintf("release of %d, by id %v", i, byID)
					each(t, what, want, func(c at) string {
						var err error
						if p := out[i][c.world]; byID {
							err = semaphore.New(c.Client, c.name, 0).Release(ctx, p.IDs()[0])
						} else {
							err = p.Release(ctx)
						}
						if errors.Is(err, semaphore.ErrNotHeld) || errors.Is(err, mortise.ErrLost) ||
							errors.Is(err, mortise.ErrReleased) {
							return "NotHeld"
						}
						return verdict(err)
					})
				}
			}
			ops["release"], ops["release by id"] = release(false), release(true)
		case backend.KindCountDownLatch:
			available = func(c at) (int64, error) { return latch.New(c.Client, c.name).Count(ctx) }
			ops["set"] = func(t *rapid.T) {
				n := some(t)
				each(t, fmt.Sprint("set ", n), says(k.setCount(request(n))), func(c at) string {
					return said(latch.New(c.Client, c.name).TrySet(ctx, int64(n)))
				})
			}
			ops["down"] = func(t *rapid.T) {
				k.countDown(request(1))
				each(t, "count down", "ok", func(c at) string { return verdict(latch.New(c.Client, c.name).CountDown(ctx)) })
			}
			ops["down too"] = ops["down"]
			ops["delete"] = func(t *rapid.T) {
				each(t, "delete", says(k.deleteCount(request(0))), func(c at) string {
					return said(latch.New(c.Client, c.name).Delete(ctx))
				})
			}
			ops["wait"] = func(t *rapid.T) {
				if k.there() == 0 {
					each(t, "wait", "ok", func(c at) string { return verdict(latch.New(c.Client, c.name).Wait(ctx)) })
				}
			}
		}
		ops[""] = func(t *rapid.T) {
			each(t, "count", number(k.readCount(kind).n), func(c at) string {
				n, err := available(c)
				return fmt.Sprint(n, " ", verdict(err))
			})
		}
		repeat(t, ops)
		for _, ps := range out {
			for _, p := range ps {
				p.Release(ctx)
			}
		}
	})
}
