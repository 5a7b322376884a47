package property

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/test/internal/harness"
)

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

// parts draws names in any order, perhaps one of them twice, and who asks for each.
func (x *together) parts(t *rapid.T, client int) (names []string, parts func(w *world) []mortise.Part) {
	names = rapid.Permutation(x.names).Draw(t, "order")[:rapid.IntRange(1, len(x.names)).Draw(t, "many")]
	if rapid.IntRange(0, 4).Draw(t, "twice") == 0 {
		names = append(names[:len(names):len(names)], names[0])
	}
	fenced := rapid.SliceOfN(rapid.Bool(), len(names), len(names)).Draw(t, "fenced")
	return names, func(w *world) []mortise.Part {
		var p []mortise.Part
		for i, n := range names {
			p = append(p, mortise.Part{Locker: w.locker(client, fenced[i]), Name: w.key(n)})
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
			t.Fatalf("LockAll(%q) by client %d: %s in %s, %s in %s", names, client, verdicts[0], x.worlds[0].label, v, x.worlds[n].label)
		}
	}
	if verdicts[0] == "ok" {
		x.live = append(x.live, d)
	}
}

// attempt is LockAll that is cancelled when it waits.
func (x *together) attempt(t *rapid.T, w *world, ctx context.Context, parts []mortise.Part) (*mortise.Lease, string) {
	ctx, cancel := context.WithCancel(ctx)
	type result struct {
		lease *mortise.Lease
		err   error
	}
	done := make(chan result, 1)
	before := w.waiting.Load()
	go func() {
		l, err := mortise.LockAll(ctx, parts)
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
				// Under a context that has ended already it may have come back before anybody looked.
				if waits || w.waiting.Load() > before {
					return nil, "waits"
				}
				return nil, verdict(r.err)
			}
			if waits { // it was granted after all
				r.lease.Unlock(context.Background())
				cancel()
				t.Fatalf("%s: LockAll(%v) waited, and was granted though nobody unlocked", w.label, parts)
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

// compare looks at every record, in every world: as many holds as live leases name it, by one client.
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
			s, err := w.client[0].Inspect(context.Background(), w.key(name))
			harness.FatalIf(t, err != nil, "%s: Inspect: %v", w.label, err)
			if s.Holds != holds || s.Held != (holds > 0) || s.Held && s.Client != w.client[client].ID() {
				t.Fatalf("%s: %q: %+v, want %d holds of client %d", w.label, name, s, holds, client)
			}
		}
	}
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
		t.Repeat(map[string]func(*rapid.T){
			"lock all": x.lockAll, "lock all too": x.lockAll, "unlock": x.unlock, "": x.compare,
		})
		for len(x.live) > 0 {
			x.unlockOf(t, len(x.live)-1)
			x.compare(t)
		}
	})
}
