package property

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mortise-go/mortise/backend"
)

var fairOwners = []string{"c1:1", "c1:2", "c2:1", "uuid:77", "Ω \x00\n:9"}

// Who is granted the lock, who has a place, and who is told of what is the same in
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
				w.port[0].Watch(x)
			}
			await(t, w.label+": all is listened for", func() bool {
				return len(w.ears[0].of(w.ears[0].watching, w.key(name))) == len(fairOwners)+1
			})
		}
		defer func() {
			for _, w := range worlds {
				for _, x := range topics(w) {
					w.port[0].Unwatch(x)
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
				if rec, err := worlds[0].port[0].Inspect(ctx, topic(worlds[0].key(name))); err == nil && rec.Held {
					return rec.Owner
				}
			}
			return owner(t)
		}
		t.Repeat(map[string]func(*rapid.T){
			"ask": func(t *rapid.T) {
				o, wait, fenced := owner(t), rapid.SampledFrom([]time.Duration{0, 5 * time.Minute, time.Hour}).Draw(t, "wait"), rapid.Bool().Draw(t, "fenced")
				each(t, fmt.Sprintf("%q asks, wait %v", o, wait), func(w *opened) string {
					r, err := w.port[0].Acquire(ctx, backend.AcquireRequest{Kind: backend.KindFair, Name: w.key(name), Owner: o, Lease: time.Minute, Wait: wait, Fenced: fenced})
					return fmt.Sprint(verdict(err), r.Granted, r.Remaining > 0, r.Token > 0, wait > 0 && r.Look > r.Remaining)
				})
			},
			"ask plainly": func(t *rapid.T) {
				o := owner(t)
				each(t, fmt.Sprintf("%q asks plainly", o), func(w *opened) string {
					r, err := w.port[0].Acquire(ctx, backend.AcquireRequest{Name: w.key(name), Owner: o, Lease: time.Minute})
					return fmt.Sprint(verdict(err), r.Granted, r.Remaining > 0)
				})
			},
			"release": func(t *rapid.T) {
				o, keep := holderOr(t), rapid.SampledFrom([]int{0, 0, 0, 2}).Draw(t, "keep")
				kind := rapid.SampledFrom([]backend.Kind{backend.KindFair, backend.KindFair, backend.KindLock}).Draw(t, "kind")
				each(t, fmt.Sprintf("%q releases as kind %d, keep %d", o, kind, keep), func(w *opened) string {
					r, err := w.port[0].Release(ctx, backend.ReleaseRequest{Kind: kind, Name: w.key(name), Owner: o, Keep: keep})
					return fmt.Sprint(verdict(err), r)
				})
			},
			"leave": func(t *rapid.T) {
				o := owner(t)
				each(t, fmt.Sprintf("%q leaves", o), func(w *opened) string {
					r, err := w.port[0].(backend.FairSession).Leave(ctx, backend.LeaveRequest{Name: w.key(name), Owner: o, Wait: 5 * time.Minute})
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
					r, err := w.port[0].Inspect(ctx, topic(w.key(name)))
					return fmt.Sprint(verdict(err), r.Owner, r.Holds)
				})
				told := func(w *opened) map[backend.Topic]int { return w.ears[0].of(w.ears[0].released, w.key(name)) }
				for _, w := range worlds[1:] {
					await(t, w.label+": the same are told as in the model", func() bool { return maps.Equal(told(worlds[0]), told(w)) })
				}
			},
		})
		// Those who are left are served in one order.
		for range fairOwners {
			each(t, "whose turn it is", func(w *opened) string {
				if rec, _ := w.port[0].Inspect(ctx, topic(w.key(name))); rec.Held {
					w.port[0].Release(ctx, backend.ReleaseRequest{Kind: backend.KindFair, Name: w.key(name), Owner: rec.Owner})
				}
				for _, o := range fairOwners {
					if r, _ := w.port[0].Acquire(ctx, backend.AcquireRequest{Kind: backend.KindFair, Name: w.key(name), Owner: o, Lease: time.Minute}); r.Granted {
						return o
					}
				}
				return "nobody's"
			})
		}
	})
}
