//go:build unix

package fuzz

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/semaphore"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// What the bits of FuzzCalls's kind say.
const (
	fair = 1 << iota
	fenced
	nonReentrant
	polling
	withLease
	withWait
	withMaxHold
	withWatchdog
	sides
	counts
	together
)

// FuzzCalls takes locks and counts of names of any bytes, as clients with any id, for any durations. All
// stores must answer alike.
func FuzzCalls(f *testing.F) {
	const second = int64(time.Second)
	for _, name := range []string{
		"n", "", " ", "\x00", "a\nb", "{", "}", "{}", "{a}", "a{b}c", "{a}{b}", "}{a}", "{{a}}", "a}", "{a",
		"\xff\xfe", "é😀", "*", "?[a]", "-1", "\r\n$3\r\nabc\r\n", "%s%n", "../n", "KEYS[1]",
		"redisson_lock__channel:{n}", "mortise:1:next:{n}2", "mortise:1:next:{n}2:round", "n:timeout",
		"{n}:a:1:rwlock_timeout:1",
		strings.Repeat("x", 65536), strings.Repeat("x", 65537), "{" + strings.Repeat("\x00", 65000) + "}",
	} {
		f.Add(name, "host/1/x", uint16(fair|fenced|withWait), int64(0), second, int64(0), int64(0), int64(0))
		f.Add(name, "", uint16(sides|counts|together), int64(1), int64(1), int64(0), int64(0), int64(0))
	}
	for _, id := range []string{
		"a", "a:b", ":", "a:1:write", "mode", "\x00", "a\nb", "{x}", "\xff", "^%x+", "%",
		strings.Repeat("i", 256), strings.Repeat("i", 257),
	} {
		f.Add("n", id, uint16(fair|withWait), int64(0), int64(time.Millisecond), int64(0), int64(0), int64(0))
		f.Add("n", id, uint16(sides|fenced), int64(0), int64(0), int64(0), int64(0), int64(0))
	}
	for _, d := range []int64{
		0, 1, -1, 999_999, 1_000_001, 49_999_999, 50_000_000, 50_000_001, second, 60 * second,
		int64(mortise.MaxLease), int64(mortise.MaxLease) + 1,
		math.MaxInt64, math.MaxInt64 - 999_999, math.MinInt64, math.MaxInt64 / 1_000_000 * 1_000_000,
	} {
		f.Add("n", "c", uint16(withLease), d, d, d, d, d)
		f.Add("n", "c", uint16(fair|withWait), d, d, d, d, d)
		f.Add("n", "c", uint16(withMaxHold), d, d, d, d, d)
		f.Add("n", "c", uint16(withWatchdog|withWait|sides), d, d, d, d, d)
		f.Add("n", "c", uint16(polling|withWait), d, d, d, d, d)
		f.Add("n", "c", uint16(counts), d, d, d, d, d)
	}
	f.Fuzz(func(t *testing.T, name, id string, kind uint16, lease, wait, hold, watchdog, pause int64) {
		in := calls{name: name, id: id, kind: kind, lease: lease, wait: wait, hold: hold, watchdog: watchdog, pause: pause}
		w := theWorld()
		names := []string{name, name + "s", name + "p", name + "l"}
		around := decoys(names)
		var first []string
		for _, store := range stores {
			real := store != inMemory
			var before []string
			if real {
				w.reset(t, around)
				before = w.digests(t, around)
			}
			said := in.on(t, w, store)
			if first == nil {
				first = said
			} else if a, b := strings.Join(first, ", "), strings.Join(said, ", "); a != b {
				t.Errorf("the stores differ:\n%s: %s\n%s: %s", stores[0], a, store, b)
			}
			if !real {
				continue
			}
			for _, k := range w.unharmed(t, names, around, before) {
				switch {
				case strings.HasPrefix(k.name, "redisson_lock_token:") && k.name != name && kind&fenced != 0:
				case strings.HasPrefix(k.name, "mortise:1:") && k.expires:
				case kind&counts != 0 && slices.Contains(names[1:], k.name):
				default:
					t.Fatalf("%s: left behind: %q, which expires: %v; fields %q", store, k.name, k.expires, k.fields)
				}
			}
		}
	})
}

// calls is what a user does.
type calls struct {
	name, id                           string
	kind                               uint16
	lease, wait, hold, watchdog, pause int64
}

func (in *calls) has(bit uint16) bool { return in.kind&bit != 0 }

// long tells whether nothing that is held ends by time while the input lasts.
func (in *calls) long() bool {
	long := func(bit uint16, d int64) bool { return !in.has(bit) || d >= int64(slack) }
	return long(withLease, in.lease) && long(withMaxHold, in.hold) && long(withWatchdog, in.watchdog) &&
		(long(withWait, in.wait) || in.wait <= 0)
}

// on returns what a store answered, as far as it does not depend on time.
func (in calls) on(t *testing.T, w *world, store string) (said []string) {
	say := func(what string, err error) bool {
		said = append(said, what+": "+verdict(err))
		return err == nil
	}

	var opts []mortise.ClientOption
	if in.has(withWatchdog) {
		opts = append(opts, mortise.WithWatchdogTimeout(time.Duration(in.watchdog)))
	}
	b := w.backend(store)
	c, err := mortise.New(b, append(opts, mortise.WithID(in.id))...)
	if !say("New", err) {
		c = harness.Must(mortise.New(b))(t)
		in.kind &^= withWatchdog
	}
	defer func() {
		harness.ErrorIf(t, !shutdown(t, c, enough), "%s: Shutdown was not over within %v", store, enough)
	}()
	var k, all []mortise.Option
	if in.has(fenced) {
		k = append(k, mortise.Fenced())
	}
	if in.has(nonReentrant) {
		k = append(k, mortise.NonReentrant())
	}
	if all = slices.Clone(k); in.has(fair) {
		all = append(all, mortise.Fair())
	}
	if in.has(polling) && in.pause != 0 {
		all = append(all, mortise.Polling(time.Duration(in.pause)))
	}
	l := c.With(all...)
	if _, err := c.Check(t.Context()); !say("Check", err) {
		l = c.With(k...)
	}
	in.lock(t, c, l, say)
	if in.has(sides) {
		in.readAndWrite(t, c, say)
	}
	if in.has(counts) {
		in.count(t, c, say)
	}
	if !in.long() {
		return said[:min(len(said), 2)]
	}
	return said
}

// options are those of a lock.
func (in *calls) options() (opts []mortise.Option) {
	if in.has(withLease) {
		opts = append(opts, mortise.WithLease(time.Duration(in.lease)))
	}
	if in.has(withMaxHold) {
		opts = append(opts, mortise.WithMaxHold(time.Duration(in.hold)))
	}
	if in.has(withWait) {
		opts = append(opts, mortise.WithWait(time.Duration(in.wait)))
	}
	return opts
}

const (
	enough = 5 * time.Second // go test ends a process that fuzzes one input for ten
	short  = 2 * time.Millisecond
)

func (in *calls) lock(t *testing.T, c *mortise.Client, l mortise.Locker, say func(string, error) bool) {
	lease, err := call(t, "Lock", enough, func(ctx context.Context) (*mortise.Lease, error) {
		return l.Lock(context.WithoutCancel(ctx), in.name, in.options()...)
	})
	if !say("Lock", err) {
		return
	}
	token := lease.Token()
	harness.ErrorIf(t, token < 0 || (token != 0) != in.has(fenced), "token %d", token)
	inner, err := call(t, "Lock again", enough, func(context.Context) (*mortise.Lease, error) {
		return l.Lock(lease.Context(), in.name, in.options()...)
	})
	again := say("Lock again", err)
	other, err := call(t, "TryLock", enough, func(ctx context.Context) (*mortise.Lease, error) {
		return l.TryLock(context.WithoutCancel(ctx), in.name)
	})
	say("TryLock", err)
	in.late(t, "two hold it", lease, other, err)
	if in.has(withWait) {
		other, err = call(t, "Lock, and wait", short, func(ctx context.Context) (*mortise.Lease, error) {
			return l.Lock(ctx, in.name, mortise.WithWait(time.Duration(max(in.wait, 1))))
		})
		in.late(t, "two hold it", lease, other, err)
	}
	if in.has(together) {
		all, err := call(t, "LockAll", enough, func(ctx context.Context) (*mortise.Lease, error) {
			return mortise.Parts{}.And(l, in.name+"p", in.name+"l").Lock(context.WithoutCancel(ctx), in.options()...)
		})
		if say("LockAll", err) {
			in.unlock(t, "Unlock all", all, say)
		}
	}
	state, err := call(t, "Inspect", enough, func(ctx context.Context) (mortise.LockInfo, error) {
		return c.Inspect(ctx, in.name)
	})
	say("Inspect", err)
	right := state.Held && state.Mine && (state.Holds == 2) == again &&
		state.Remaining > 0 && state.Remaining <= mortise.MaxLease
	harness.ErrorIf(t, err == nil && in.long() && !right, "Inspect: %+v", state)
	if again {
		in.unlock(t, "Unlock", inner, say)
	}
	in.unlock(t, "Unlock", lease, say)
	err = does(t, "Unlock twice", enough, lease.Unlock)
	say("Unlock twice", err)
	harness.ErrorIf(t, err == nil, "unlocked twice")
}

// late gives back what was had because the holder's time is over, which it must be then.
func (in *calls) late(t *testing.T, wrong string, holder, got *mortise.Lease, err error) {
	t.Helper()
	if err != nil {
		return
	}
	if holder.Err() == nil {
		t.Error(wrong)
	}
	in.unlock(t, "Unlock what was had late", got, func(string, error) bool { return true })
}

func (in *calls) unlock(t *testing.T, what string, l *mortise.Lease, say func(string, error) bool) {
	say(what, does(t, what, enough, l.Unlock))
}

func (in *calls) readAndWrite(t *testing.T, c *mortise.Client, say func(string, error) bool) {
	read, write := c.RW().Read, c.RW().Write
	w, err := call(t, "write", enough, func(ctx context.Context) (*mortise.Lease, error) {
		return write.Lock(context.WithoutCancel(ctx), in.name, in.options()...)
	})
	if !say("write", err) {
		return
	}
	r, err := call(t, "read under it", enough, func(context.Context) (*mortise.Lease, error) {
		return read.Lock(w.Context(), in.name, in.options()...)
	})
	under := say("read under it", err)
	other, err := call(t, "try to read", enough, func(ctx context.Context) (*mortise.Lease, error) {
		return read.TryLock(context.WithoutCancel(ctx), in.name)
	})
	say("try to read", err)
	in.late(t, "one reads while another writes", w, other, err)
	in.unlock(t, "Unlock the writer", w, say)
	if !under {
		return
	}
	other, err = call(t, "write beside it", short, func(ctx context.Context) (*mortise.Lease, error) {
		return write.Lock(ctx, in.name)
	})
	in.late(t, "one writes while another reads", r, other, err)
	in.unlock(t, "Unlock the reader", r, say)
}

func (in *calls) count(t *testing.T, c *mortise.Client, say func(string, error) bool) {
	ask := func(what string, f func(ctx context.Context) error) bool { return say(what, does(t, what, enough, f)) }
	n := int(in.lease)
	s := semaphore.NewCounting(c, in.name+"s")
	if ask("TrySetPermits", func(ctx context.Context) error { return harness.Err(s.TrySetPermits(ctx, n)) }) {
		ask("TryAcquire", func(ctx context.Context) error { return s.TryAcquire(ctx, int(in.hold)) })
		ask("AddPermits", func(ctx context.Context) error { return s.AddPermits(ctx, int(in.pause)) })
		ask("Available", func(ctx context.Context) error { return harness.Err(s.Available(ctx)) })
		ask("Drain", func(ctx context.Context) error { return harness.Err(s.Drain(ctx)) })
	}

	p := semaphore.New(c, in.name+"p", 0)
	set := func(ctx context.Context) error { return harness.Err(p.TrySetPermits(ctx, n)) }
	if ask("TrySetPermits of a semaphore", set) {
		got, err := call(t, "TryAcquire", enough, func(ctx context.Context) (*semaphore.Permit, error) {
			return p.TryAcquire(ctx, 1)
		})
		if say("TryAcquire of a semaphore", err) {
			ask("Release", got.Release)
		}
	}

	latch := latch.New(c, in.name+"l")
	if ask("TrySet", func(ctx context.Context) error { return harness.Err(latch.TrySet(ctx, int64(n))) }) {
		ask("CountDown", latch.CountDown)
		does(t, "Wait", short, func(ctx context.Context) error { return latch.Wait(ctx) })
		ask("Count", func(ctx context.Context) error { return harness.Err(latch.Count(ctx)) })
	}
}
