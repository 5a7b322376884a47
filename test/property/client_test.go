package property

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/test/internal/harness"
)

const clients = 3

// world is a store with clients on it, numbered alike in all worlds.
type world struct {
	*store
	client [clients]*mortise.Client
	fenced [clients]mortise.Locker
	// waiting counts the Locks that began to wait.
	waiting atomic.Int64
}

func openClients(t *testing.T) []*world {
	var all []*world
	for _, s := range openStores(t) {
		w := &world{store: s}
		for i := range clients {
			w.client[i] = newClient(t, s, mortise.WithID(fmt.Sprintf("%s%d", fresh(), i)), mortise.WithObserver(mortise.Observer{
				Waiting: func(mortise.Event) { w.waiting.Add(1) },
			}))
			w.fenced[i] = w.client[i].With(mortise.Fenced())
		}
		all = append(all, w)
	}
	return all
}

func (w *world) locker(client int, fenced bool) mortise.Locker {
	if fenced {
		return w.fenced[client]
	}
	return w.client[client]
}

// drawn is a lease that was taken in every world.
type drawn struct {
	name   string
	client int
	in     []*mortise.Lease // by world
	// either: it was unlocked when its record was gone, and says that it was lost or
	// that it was released, depending on which its client heard of first.
	either bool
}

// end tells how a lease ended in a world; "ok" if it did not.
func (d *drawn) end(n int) string {
	v := verdict(d.in[n].Err())
	if d.either && v == "Released" {
		return "Lost"
	}
	return v
}

// history is one sequence of operations through the API.
type history struct {
	worlds []*world // the first is the model
	names  []string
	leases []*drawn
	owner  []map[string]string // by world: the model's owner to this world's
	back   []map[string]string // and the other way round
	short  int                 // leases that may yet be waited out
}

// each runs an operation in every world and compares its error, which is returned as
// the model has it.
func (h *history) each(t *rapid.T, what string, op func(n int, w *world) error) error {
	return h.eachWith(t, what, false, op)
}

// eachWith: where stale is true, a refusal by a store that lags is asked for again.
func (h *history) eachWith(t *rapid.T, what string, stale bool, op func(n int, w *world) error) error {
	t.Helper()
	want := op(0, h.worlds[0])
	t.Logf("%s: %v", what, want)
	for n, w := range h.worlds[1:] {
		var got error
		w.again(func() bool {
			got = op(n+1, w)
			return !stale || want != nil || !errors.Is(got, mortise.ErrNotAcquired)
		})
		if h.verdict(got) != h.verdict(want) || !alike(remainingOf(got), remainingOf(want)) {
			t.Fatalf("%s:\n%s: %v\n%s: %v", what, h.worlds[0].label, want, w.label, got)
		}
	}
	return want
}

// verdict of an error that may be that of a context which ended with a lease: see
// drawn.either.
func (h *history) verdict(err error) string {
	v := verdict(err)
	if errors.Is(err, context.Canceled) && slices.ContainsFunc(h.leases, func(d *drawn) bool { return d.either }) {
		return strings.Replace(v, "Released", "Lost", 1)
	}
	return v
}

func remainingOf(err error) time.Duration {
	var e *mortise.Error
	if errors.As(err, &e) {
		return e.Remaining
	}
	return 0
}

func (h *history) name(t *rapid.T) string { return rapid.SampledFrom(h.names).Draw(t, "name") }
func (h *history) client(t *rapid.T) int  { return rapid.IntRange(0, clients-1).Draw(t, "client") }

// index draws one of the leases, ended ones included; -1 if there is none.
func (h *history) index(t *rapid.T) int {
	if len(h.leases) == 0 {
		return -1
	}
	return rapid.IntRange(0, len(h.leases)-1).Draw(t, "lease")
}

// contexts draws where a Lock's context comes from, and tells it in words. It
// prefers a live lease, and its name and client, for only these can be entered again.
func (h *history) contexts(t *rapid.T, name *string, client *int) (func(n int) context.Context, string) {
	kind := rapid.SampledFrom([]string{"fresh", "lease's", "lease's", "kept"}).Draw(t, "context")
	k := h.index(t)
	if kind == "fresh" || k < 0 {
		return func(int) context.Context { return context.Background() }, "fresh context"
	}
	if rapid.IntRange(0, 4).Draw(t, "of its own") > 0 {
		*name, *client = h.leases[k].name, h.leases[k].client
	}
	own, what := func(n int) context.Context { return h.leases[k].in[n].Context() }, fmt.Sprintf("context of lease %d", k)
	if kind == "kept" {
		return func(n int) context.Context { return context.WithoutCancel(own(n)) }, what + ", kept"
	}
	return own, what
}

func (h *history) tryLock(t *rapid.T) {
	name, client, fenced := h.name(t), h.client(t), rapid.Bool().Draw(t, "fenced")
	ctx, from := h.contexts(t, &name, &client)
	var opts []mortise.Option
	switch rapid.IntRange(0, 4).Draw(t, "option") {
	case 0:
		opts = append(opts, mortise.WithLease(10*time.Second))
	case 1:
		opts = append(opts, mortise.WithLease(60*time.Second))
	case 2:
		opts = append(opts, mortise.WithMaxHold(15*time.Second))
	}
	d := &drawn{name: name, client: client, in: make([]*mortise.Lease, len(h.worlds))}
	what := fmt.Sprintf("TryLock(%q, %v) by %d, fenced=%v, %s", name, opts, client, fenced, from)
	err := h.eachWith(t, what, true, func(n int, w *world) (err error) {
		d.in[n], err = w.locker(client, fenced).TryLock(ctx(n), w.key(name), opts...)
		return err
	})
	if err == nil {
		h.add(t, d)
	}
}

// add notes a new lease and compares its token with those before.
func (h *history) add(t *rapid.T, d *drawn) {
	h.leases = append(h.leases, d)
	t.Logf("that is lease %d", len(h.leases)-1)
	h.compareTokens(t)
}

func (h *history) compareTokens(t *rapid.T) {
	last := h.leases[len(h.leases)-1]
	want := last.in[0].Token()
	fenced := want != 0
	for n, w := range h.worlds[1:] {
		got := last.in[n+1].Token()
		is := got != 0
		if is != fenced {
			t.Fatalf("lease %d: %s fenced=%v, %s fenced=%v", len(h.leases)-1, h.worlds[0].label, fenced, w.label, is)
		}
		for k, d := range h.leases {
			if d.name != last.name {
				continue
			}
			model := d.in[0].Token()
			here := d.in[n+1].Token()
			if model != 0 && cmp.Compare(want, model) != cmp.Compare(got, here) {
				t.Fatalf("tokens of leases %d and %d: %s has %d and %d, %s has %d and %d", k, len(h.leases)-1,
					h.worlds[0].label, model, want, w.label, here, got)
			}
		}
	}
}

func (h *history) unlock(t *rapid.T) {
	if k := h.index(t); k >= 0 {
		h.unlockOf(t, k)
	}
}

func (h *history) unlockOf(t *rapid.T, k int) {
	h.each(t, fmt.Sprintf("Unlock of lease %d", k), func(n int, _ *world) error {
		return h.leases[k].in[n].Unlock(context.Background())
	})
}

// unlockInVain has a context that has ended: the caller may not hear of it, but the
// lock is released all the same.
func (h *history) unlockInVain(t *rapid.T) {
	k := h.index(t)
	if k < 0 {
		return
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	t.Logf("Unlock of lease %d with a context that has ended", k)
	name := h.leases[k].name
	for n, w := range h.worlds {
		before, left := h.state(t, w, name), 0
		for _, d := range h.liveOf(n, name) {
			if d != h.leases[k] {
				left++
			}
		}
		held := h.leases[k].in[n].Err() == nil
		err := h.leases[k].in[n].Unlock(ended)
		if held && err != nil && !errors.Is(err, context.Canceled) {
			t.Fatalf("%s: Unlock: %v", w.label, err)
		}
		harness.FatalIf(t, !held && !errors.Is(err, context.Canceled) && !errors.Is(err, mortise.ErrLost) &&
			!errors.Is(err, mortise.ErrReleased),
			"%s: Unlock of an ended lease: %v", w.label, err)
		if held {
			await(t, fmt.Sprintf("%s: %d of %d holds are left", w.label, left, before.Holds), func() bool {
				s := h.state(t, w, name)
				return s.Holds == left && s.Held == (left > 0)
			})
		}
	}
}

// liveOf are the leases on a name that are live in a world.
func (h *history) liveOf(n int, name string) (live []*drawn) {
	for _, d := range h.leases {
		if d.name == name && d.in[n].Err() == nil {
			live = append(live, d)
		}
	}
	return live
}

func (h *history) state(t *rapid.T, w *world, name string) mortise.LockInfo {
	t.Helper()
	s, err := w.client[0].Inspect(context.Background(), w.key(name))
	harness.FatalIf(t, err != nil, "%s: Inspect: %v", w.label, err)
	return s
}

func (h *history) forceUnlock(t *rapid.T) {
	name, client := h.name(t), h.client(t)
	removed := make([]bool, len(h.worlds))
	h.each(t, fmt.Sprintf("ForceUnlock(%q) by %d", name, client), func(n int, w *world) (err error) {
		removed[n], err = w.client[client].ForceUnlock(context.Background(), w.key(name), "")
		return err
	})
	for n, w := range h.worlds {
		if removed[n] != removed[0] {
			t.Fatalf("ForceUnlock(%q): %s %v, %s %v", name, h.worlds[0].label, removed[0], w.label, removed[n])
		}
	}
	h.lost(t, name)
}

// remove deletes a record. Either its holders are told, or all they know is what the
// store answers to their Unlocks, in whatever order these come.
func (h *history) remove(t *rapid.T) {
	name := h.name(t)
	live := h.liveOf(0, name)
	t.Logf("%q is deleted", name)
	for _, w := range h.worlds {
		w.store.remove(w.key(name))
	}
	if rapid.Bool().Draw(t, "unlocked at once") {
		for _, k := range rapid.Permutation(h.indexes(live)).Draw(t, "order") {
			h.leases[k].either = true
			h.unlockOf(t, k)
		}
	}
	h.lost(t, name)
}

func (h *history) indexes(of []*drawn) (ks []int) {
	for k, d := range h.leases {
		for _, o := range of {
			if d == o {
				ks = append(ks, k)
			}
		}
	}
	return ks
}

// lost awaits that all clients know that name is free.
func (h *history) lost(t *rapid.T, name string) {
	for n, w := range h.worlds {
		if !w.tells {
			w.hint(name)
		}
		await(t, fmt.Sprintf("%s: the holders of %q know that it was removed", w.label, name), func() bool {
			return len(h.liveOf(n, name)) == 0
		})
	}
}

// expire takes a short lease and sees it end, for its holder first.
func (h *history) expire(t *rapid.T) {
	const lease, margin = 80 * time.Millisecond, 10 * time.Millisecond
	name, client, fenced := h.name(t), h.client(t), rapid.Bool().Draw(t, "fenced")
	if h.short == 0 || h.state(t, h.worlds[0], name).Held {
		return // held, or enough was waited for
	}
	h.short--
	t.Logf("lease of %v on %q by %d, fenced=%v, waited out", lease, name, client, fenced)
	d := &drawn{name: name, client: client, in: make([]*mortise.Lease, len(h.worlds))}
	var sent time.Time
	take := func(n int, w *world) (err error) {
		sent = time.Now()
		d.in[n], err = w.locker(client, fenced).TryLock(context.Background(), w.key(name), mortise.WithLease(lease))
		return err
	}
	late := false
	for n, w := range h.worlds {
		var err error
		w.again(func() bool {
			err = take(n, w)
			return !errors.Is(err, mortise.ErrNotAcquired)
		})
		if errors.Is(err, mortise.ErrUnavailable) && time.Since(sent) > lease-margin {
			late = true // the machine was busy: the answer came when the lease was over
			await(t, w.label+": what came late is given back", func() bool { return !h.state(t, w, name).Held })
			continue
		}
		harness.FatalIf(t, err != nil, "%s: TryLock of a free name: %v", w.label, err)
		await(t, w.label+": the lease is over", func() bool {
			s := h.state(t, w, name)
			err, now := d.in[n].Err(), time.Now()
			switch {
			case err == nil && !s.Held:
				t.Fatalf("%s: the record was gone before the holder was told", w.label)
			case err != nil && !errors.Is(err, mortise.ErrLost):
				t.Fatalf("%s: the lease ended with %v", w.label, err)
			case err != nil && now.Sub(sent) < lease-margin:
				t.Fatalf("%s: a lease of %v ended after %v", w.label, lease, now.Sub(sent))
			}
			return !s.Held
		})
	}
	if !late {
		h.add(t, d)
	}
}

// handover has a client wait for a lock whose holds are then unlocked one by one.
func (h *history) handover(t *rapid.T) {
	name, client := h.name(t), h.client(t)
	live := h.liveOf(0, name)
	if len(live) == 0 {
		return
	}
	order := rapid.Permutation(h.indexes(live)).Draw(t, "order")
	t.Logf("handover of %q to %d", name, client)
	d := &drawn{name: name, client: client, in: make([]*mortise.Lease, len(h.worlds))}
	got := make(chan error, len(h.worlds))
	for n, w := range h.worlds {
		before := w.waiting.Load()
		go func() {
			var err error
			d.in[n], err = w.client[client].Lock(context.Background(), w.key(name), mortise.WithWait(soon))
			if err != nil {
				err = fmt.Errorf("%s: %w", w.label, err)
			}
			got <- err
		}()
		await(t, w.label+": it waits", func() bool { return w.waiting.Load() > before })
	}
	for _, k := range order {
		h.unlockOf(t, k)
	}
	for range h.worlds {
		harness.OKf(t, <-got, "a waiter did not get what was released")
	}
	for _, w := range h.worlds { // a grant by a message is short until the client has renewed it
		await(t, w.label+": the grant is confirmed", func() bool {
			s := h.state(t, w, name)
			return !s.Held || s.Remaining > 2*backend.FirstLease
		})
	}
	h.add(t, d)
}

// compare looks at everything in every world, after each operation.
func (h *history) compare(t *rapid.T) {
	for k, d := range h.leases {
		want := d.end(0)
		over := d.in[0].Context().Err() != nil
		for n, w := range h.worlds {
			if got := d.end(n); got != want {
				t.Fatalf("lease %d: %s says %s, %s says %s", k, h.worlds[0].label, want, w.label, got)
			}
			if want != "ok" {
				await(t, fmt.Sprintf("%s: the context of lease %d has ended", w.label, k), func() bool {
					return d.in[n].Context().Err() != nil
				})
				continue
			}
			if got := d.in[n].Context().Err() != nil; got != over {
				t.Fatalf("lease %d: its context has ended: %s %v, %s %v", k, h.worlds[0].label, over, w.label, got)
			}
		}
	}
	for _, name := range h.names {
		want := h.state(t, h.worlds[0], name)
		for n, w := range h.worlds {
			s := h.state(t, w, name)
			if s.Held != want.Held || s.Holds != want.Holds || !alike(s.Remaining, want.Remaining) {
				t.Fatalf("%q:\n%s: %+v\n%s: %+v", name, h.worlds[0].label, want, w.label, s)
			}
			// Every hold in the store is a live lease, and the reverse.
			if live := len(h.liveOf(n, name)); live != s.Holds {
				t.Fatalf("%q: %s counts %d holds, %d leases are live", name, w.label, s.Holds, live)
			}
			if !s.Held {
				continue
			}
			if index(w, s.Client) != index(h.worlds[0], want.Client) {
				t.Fatalf("%q: %s has it held by %s, %s by %s", name, h.worlds[0].label, want.Client, w.label, s.Client)
			}
			if was, ok := h.owner[n][want.Owner]; ok && was != s.Owner {
				t.Fatalf("%q: the model's owner %s is %s and %s in %s", name, want.Owner, was, s.Owner, w.label)
			}
			if was, ok := h.back[n][s.Owner]; ok && was != want.Owner {
				t.Fatalf("%q: owner %s of %s is %s and %s in the model", name, s.Owner, w.label, was, want.Owner)
			}
			h.owner[n][want.Owner], h.back[n][s.Owner] = s.Owner, want.Owner
		}
	}
}

// index is the number of a client of w by its id.
func index(w *world, id string) int {
	for i, c := range w.client {
		if c.ID() == id {
			return i
		}
	}
	return -1
}

func TestEveryStoreAnswersThroughAClientAsTheModelDoes(t *testing.T) {
	worlds := openClients(t)
	rapid.Check(t, func(t *rapid.T) {
		h := &history{worlds: worlds, short: 1}
		unique := fresh()
		for _, name := range []string{"a", "{tenant}:b ü\n"} {
			h.names = append(h.names, unique+name)
		}
		for range worlds {
			h.owner, h.back = append(h.owner, map[string]string{}), append(h.back, map[string]string{})
		}
		defer func() {
			for _, d := range h.leases {
				for _, l := range d.in {
					l.Unlock(context.Background())
				}
			}
		}()
		repeat(t, map[string]func(*rapid.T){
			"lock": h.tryLock, "lock too": h.tryLock, "lock three": h.tryLock, "unlock": h.unlock, "unlock too": h.unlock,
			"unlock in vain": h.unlockInVain, "force unlock": h.forceUnlock, "delete": h.remove, "expire": h.expire,
			"handover": h.handover, "": h.compare,
		})
		// In the end everybody unlocks, and nothing is left anywhere.
		for k := range h.leases {
			h.unlockOf(t, k)
		}
		for _, name := range h.names {
			for _, w := range worlds {
				s := h.state(t, w, name)
				harness.FatalIf(t, s.Held, "%s: %q is held after every lease was unlocked: %+v", w.label, name, s)
			}
		}
	})
}

// The test above wants owners to be told apart; this is what it takes that for.
func TestAnOwnerIsItsClientAndANumber(t *testing.T) {
	for _, w := range openClients(t) {
		name := fresh() + "n"
		l := harness.Must(w.client[1].TryLock(t.Context(), w.key(name)))(t)
		s, err := w.client[0].Inspect(t.Context(), w.key(name))
		if err != nil || s.Client != w.client[1].ID() || !strings.HasPrefix(s.Owner, s.Client+":") || s.Mine {
			t.Errorf("%s: %+v, %v", w.label, s, err)
		}
		harness.Checkf(t, l.Unlock(t.Context()), "%s", w.label)
	}
}

// taken is a lease of LockAll, or of one lock, that was taken in every world.
type taken struct {
	in     []*mortise.Lease // by world
	client int
	names  []string // of the model
}

// together is one sequence of LockAlls.
type together struct {
	worlds []*world // the first is the model
	names  []string
	live   []*taken
}

// parts draws names in any order, perhaps one of them twice, and which kind asks for each.
func (x *together) parts(t *rapid.T, client int) (names []string, parts func(w *world) mortise.Parts) {
	names = rapid.Permutation(x.names).Draw(t, "order")[:rapid.IntRange(1, len(x.names)).Draw(t, "many")]
	if rapid.IntRange(0, 4).Draw(t, "twice") == 0 {
		names = append(names[:len(names):len(names)], names[0])
	}
	fenced := rapid.SliceOfN(rapid.Bool(), len(names), len(names)).Draw(t, "fenced")
	return names, func(w *world) mortise.Parts {
		var p mortise.Parts
		for i, n := range names {
			p = p.And(w.locker(client, fenced[i]), w.key(n))
		}
		return p
	}
}

// lockAll takes names, under the background or under a lease that its client holds. One that
// would wait is cancelled.
func (x *together) lockAll(t *rapid.T) {
	client := rapid.IntRange(0, clients-1).Draw(t, "client")
	names, parts := x.parts(t, client)
	under := -1
	if len(x.live) > 0 && rapid.Bool().Draw(t, "under") {
		under = rapid.IntRange(0, len(x.live)-1).Draw(t, "lease")
		client = x.live[under].client
		names, parts = x.parts(t, client)
	}
	d := &taken{client: client, names: names}
	var verdicts []string
	for n, w := range x.worlds {
		ctx := context.Background()
		if under >= 0 {
			ctx = x.live[under].in[n].Context()
		}
		l, v := x.attempt(t, w, ctx, parts(w))
		verdicts, d.in = append(verdicts, v), append(d.in, l)
	}
	for n, v := range verdicts {
		if v != verdicts[0] {
			for _, l := range d.in {
				if l != nil {
					l.Unlock(context.Background())
				}
			}
			t.Fatalf("LockAll(%q) by client %d: %s in %s, %s in %s",
				names, client, verdicts[0], x.worlds[0].label, v, x.worlds[n].label)
		}
	}
	if verdicts[0] == "ok" {
		x.live = append(x.live, d)
	}
}

// attempt is LockAll that is cancelled when it waits.
func (x *together) attempt(t *rapid.T, w *world, ctx context.Context, parts mortise.Parts) (*mortise.Lease, string) {
	ctx, cancel := context.WithCancel(ctx)
	type result struct {
		lease *mortise.Lease
		err   error
	}
	done := make(chan result, 1)
	before := w.waiting.Load()
	go func() {
		l, err := parts.Lock(ctx)
		done <- result{l, err}
	}()
	look := time.NewTicker(200 * time.Microsecond)
	defer look.Stop()
	timeout := time.After(2 * soon)
	waits := false
	for {
		select {
		case r := <-done:
			if r.err != nil {
				cancel()
				// Under a context that has ended already it may have come back before the test looked.
				if waits || w.waiting.Load() > before {
					return nil, "waits"
				}
				return nil, verdict(r.err)
			}
			if waits { // it was granted after all
				r.lease.Unlock(context.Background())
				cancel()
				t.Fatalf("%s: LockAll(%v) waited, and was granted without an Unlock", w.label, parts)
			}
			context.AfterFunc(r.lease.Context(), cancel)
			return r.lease, "ok"
		case <-look.C:
			if !waits && w.waiting.Load() > before {
				waits = true
				cancel()
			}
		case <-timeout:
			cancel()
			t.Fatalf("%s: LockAll(%v) did not return within %v", w.label, parts, 2*soon)
		}
	}
}

// unlock unlocks any of them; the innermost need not be first.
func (x *together) unlock(t *rapid.T) {
	if len(x.live) == 0 {
		t.Skip("nothing is held")
	}
	k := rapid.IntRange(0, len(x.live)-1).Draw(t, "lease")
	x.unlockOf(t, k)
}

func (x *together) unlockOf(t *rapid.T, k int) {
	for n, w := range x.worlds {
		l := x.live[k].in[n]
		harness.OKf(t, l.Err(), "%s: the lease of %q ended", w.label, x.live[k].names)
		harness.OKf(t, l.Unlock(context.Background()), "%s: Unlock of %q", w.label, x.live[k].names)
		if err := l.Context().Err(); err == nil {
			t.Fatalf("%s: the context of %q goes on", w.label, x.live[k].names)
		}
	}
	x.live = append(x.live[:k], x.live[k+1:]...)
}

// compare looks at every record, in every world: as many holds as live leases name it, by one client. What a LockAll
// was granted, or had reserved, just as it was cancelled is given back behind its back, soon.
func (x *together) compare(t *rapid.T) {
	for _, name := range x.names {
		holds, client := 0, -1
		for _, d := range x.live {
			for _, n := range d.names {
				if n == name {
					holds++
					client = d.client
				}
			}
		}
		for _, w := range x.worlds {
			right := func(s mortise.LockInfo) bool {
				return s.Holds == holds && s.Held == (holds > 0) && !s.Reserved && (!s.Held || s.Client == w.client[client].ID())
			}
			s := inspect(t, w, name)
			for end := time.Now().Add(soon); !right(s) && time.Now().Before(end); s = inspect(t, w, name) {
				time.Sleep(time.Millisecond)
			}
			if !right(s) {
				t.Fatalf("%s: %q: %+v, want %d holds of client %d", w.label, name, s, holds, client)
			}
		}
	}
}

func inspect(t *rapid.T, w *world, name string) mortise.LockInfo {
	s, err := w.client[0].Inspect(context.Background(), w.key(name))
	harness.FatalIf(t, err != nil, "%s: Inspect: %v", w.label, err)
	return s
}

// Random LockAlls come to the same on every store; each leaves as many holds as it should, and
// none where it was given up.
func TestEveryStoreAnswersLockAllAsTheModelDoes(t *testing.T) {
	worlds := openClients(t)
	rapid.Check(t, func(t *rapid.T) {
		x := &together{worlds: worlds}
		unique := fresh()
		for i := range 3 {
			x.names = append(x.names, fmt.Sprintf("{%s}:%d", unique, i))
		}
		x.names = append(x.names, unique+"a", unique+"b")
		defer func() {
			for _, d := range x.live {
				for _, l := range d.in {
					l.Unlock(context.Background())
				}
			}
		}()
		repeat(t, map[string]func(*rapid.T){
			"lock all": x.lockAll, "lock all too": x.lockAll, "unlock": x.unlock, "": x.compare,
		})
		for len(x.live) > 0 {
			x.unlockOf(t, len(x.live)-1)
			x.compare(t)
		}
	})
}
