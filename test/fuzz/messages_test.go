//go:build unix

package fuzz

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/semaphore"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// FuzzMessages publishes what no client of ours would on the channels that a waiter listens to. It must
// neither get in before its time, nor ask without end, nor miss the release that comes after.
func FuzzMessages(f *testing.F) {
	for kind := range byte(len(waits)) {
		for text := range byte(len(payloads) + len(texts)) {
			f.Add(1+(kind+text)%2, kind, []byte{text, text})
		}
		for form := range byte(len(forms)) {
			for entry := range byte(len(entries) + 2) {
				f.Add(1+kind%2, kind, []byte{255, form, entry, 255, form, entry})
			}
		}
		f.Add(1+kind%2, kind, []byte{200, 'a', 'b', 0, 255, '\n', 3, 4, 5, 6, 7, 8, 9, 10})
	}
	f.Fuzz(func(t *testing.T, store, kind byte, script []byte) {
		w := theWorld()
		names := []string{"n"}
		around := decoys(names)
		w.reset(t, around)
		before := w.digests(t, around)
		w.scripts(t)
		holder := harness.Must(mortise.New(w.backend(byRedis)))(t)
		defer shutdown(t, holder, slack)
		by := stores[1+int(store)%2]
		waiter := harness.Must(mortise.New(w.backend(by)))(t)
		defer shutdown(t, waiter, slack)

		k := waits[int(kind)%len(waits)]
		ctx, cancel := context.WithTimeout(context.Background(), slack)
		defer cancel()
		release, err := k.hold(ctx, holder)
		harness.FatalIf(t, err != nil, "%s: %v", k.name, err)
		got := make(chan error, 1)
		go func() {
			back, err := k.wait(ctx, waiter)
			if err == nil {
				err = back(ctx)
			}
			got <- err
		}()
		channels := w.listened(t, ctx)
		p := tape(script)
		for n := 0; n < mostMessages && len(p) > 0; n++ {
			payload := w.payload(ctx, &p)
			for _, c := range append(channels, "redisson_lock__channel:{other}") {
				harness.OK(t, w.admin.Publish(ctx, c, payload).Err())
			}
		}
		select {
		case err := <-got:
			t.Fatalf("%s, %s: over before its time: %v", by, k.name, err)
		default:
		}
		harness.OKf(t, release(ctx), "%s", k.name)
		released := time.Now()
		harness.OKf(t, <-got, "%s, %s: %v after the release", by, k.name, time.Since(released))
		took := time.Since(released)
		harness.ErrorIf(t, took > slack/2, "%s, %s: it took %v after the release", by, k.name, took)
		n := w.scripts(t)
		harness.ErrorIf(t, n > 40+4*mostMessages, "%s, %s: %d scripts were sent", by, k.name, n)
		for _, l := range w.unharmed(t, names, around, before) {
			harness.ErrorIf(t, !l.expires && !k.counts, "%s, %s: %q is left behind", by, k.name, l.name)
		}
	})
}

const mostMessages = 12

// listened waits until a client listens, and returns to which channels.
func (w *world) listened(t *testing.T, ctx context.Context) []string {
	t.Helper()
	for {
		all, err := w.admin.PubSubChannels(ctx, "*").Result()
		harness.FatalIf(t, err != nil, "nothing listens: %v", err)
		if len(all) > 0 {
			return all
		}
	}
}

var payloads = []string{
	"0", "1", "2", "00", "000", "", "-1", "3",
	"r", "n", "r:", "n:", "n1", "n1:", "x:1", "n:7654321:1", "9999999999999999999",
}

// forms are those of the messages that a client is told its turn by, with an entry, and some that are none.
var forms = []string{"r%s", "n1000:%s", "n0:%s", "n4294967295:%s", "n4294967296:%s", "n-1:%s", "n1e3:%s", "n%s",
	"r%s:", "r:%s", "R%s", "%s", "n1:n1:%s", "rr%s"}

// entries are those of no client.
var entries = []string{"7654321:1", ":", "7654321:", ":1", "", "7654321:18446744073709551616", "\x00:\xff"}

// payload is what any client may publish; one in some knows what messages look like, and which client waits.
func (w *world) payload(ctx context.Context, p *tape) string {
	b := p.next()
	switch {
	case int(b) < len(payloads):
		return payloads[b]
	case b < 250:
		return p.text()
	}
	form, at := forms[int(p.next())%len(forms)], int(p.next())%(len(entries)+2)
	if at < len(entries) {
		return fmt.Sprintf(form, entries[at])
	}
	entry := "7654321:1"
	if all, err := w.admin.ZRange(ctx, "mortise:1:next:{n}2", 0, 0).Result(); err == nil && len(all) > 0 {
		entry = all[0]
	}
	if at > len(entries) { // one that its client does not wait under
		entry += "z"
	}
	return fmt.Sprintf(form, entry)
}

type undo func(context.Context) error

func locked(l *mortise.Lease, err error) (undo, error) {
	if err != nil {
		return nil, err
	}
	return l.Unlock, nil
}

func kindOf(c *mortise.Client, k ...mortise.Option) mortise.Locker {
	l := c.With(k...)
	return l
}

// waits are the ways to wait, and to have others wait.
var waits = []struct {
	name   string
	hold   func(context.Context, *mortise.Client) (undo, error)
	wait   func(context.Context, *mortise.Client) (undo, error)
	counts bool
}{
	{name: "plain",
		hold: func(ctx context.Context, c *mortise.Client) (undo, error) { return locked(c.Lock(ctx, "n")) },
		wait: func(ctx context.Context, c *mortise.Client) (undo, error) { return locked(c.Lock(ctx, "n")) }},
	{name: "fair",
		hold: func(ctx context.Context, c *mortise.Client) (undo, error) {
			return locked(kindOf(c, mortise.Fair()).Lock(ctx, "n"))
		},
		wait: func(ctx context.Context, c *mortise.Client) (undo, error) {
			return locked(kindOf(c, mortise.Fair()).Lock(ctx, "n"))
		}},
	{name: "a reader behind a writer",
		hold: func(ctx context.Context, c *mortise.Client) (undo, error) {
			write := c.RW().Write
			return locked(write.Lock(ctx, "n"))
		},
		wait: func(ctx context.Context, c *mortise.Client) (undo, error) {
			read := c.RW().Read
			return locked(read.Lock(ctx, "n"))
		}},
	{name: "a writer behind a reader",
		hold: func(ctx context.Context, c *mortise.Client) (undo, error) {
			read := c.RW().Read
			return locked(read.Lock(ctx, "n"))
		},
		wait: func(ctx context.Context, c *mortise.Client) (undo, error) {
			write := c.RW().Write
			return locked(write.Lock(ctx, "n"))
		}},
	{name: "a counting semaphore", counts: true,
		hold: func(ctx context.Context, c *mortise.Client) (undo, error) {
			s := semaphore.NewCounting(c, "n")
			if _, err := s.TrySetPermits(ctx, 1); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { return s.Release(ctx, 1) }, s.TryAcquire(ctx, 1)
		},
		wait: func(ctx context.Context, c *mortise.Client) (undo, error) {
			s := semaphore.NewCounting(c, "n")
			return func(ctx context.Context) error { return s.Release(ctx, 1) }, s.Acquire(ctx, 1)
		}},
	{name: "a semaphore", counts: true,
		hold: func(ctx context.Context, c *mortise.Client) (undo, error) {
			p := semaphore.New(c, "n", 0)
			if _, err := p.TrySetPermits(ctx, 1); err != nil {
				return nil, err
			}
			got, err := p.TryAcquire(ctx, 1)
			return func(ctx context.Context) error { return got.Release(ctx) }, err
		},
		wait: func(ctx context.Context, c *mortise.Client) (undo, error) {
			got, err := semaphore.New(c, "n", 0).Acquire(ctx, 1)
			return func(ctx context.Context) error { return got.Release(ctx) }, err
		}},
	{name: "a latch", counts: true,
		hold: func(ctx context.Context, c *mortise.Client) (undo, error) {
			l := latch.New(c, "n")
			if set, err := l.TrySet(ctx, 1); err != nil || !set {
				return nil, fmt.Errorf("not set: %v %w", set, err)
			}
			return l.CountDown, nil
		},
		wait: func(ctx context.Context, c *mortise.Client) (undo, error) {
			return func(context.Context) error { return nil }, latch.New(c, "n").Wait(ctx)
		}},
	{name: "plain, and many wait",
		hold: func(ctx context.Context, c *mortise.Client) (undo, error) { return locked(c.Lock(ctx, "n")) },
		wait: func(ctx context.Context, c *mortise.Client) (undo, error) {
			all := make(chan error, 4)
			for range cap(all) {
				go func() {
					l, err := c.Lock(ctx, "n")
					if err == nil {
						err = l.Unlock(ctx)
					}
					all <- err
				}()
			}
			var failed []string
			for range cap(all) {
				if err := <-all; err != nil {
					failed = append(failed, err.Error())
				}
			}
			if failed != nil {
				return nil, fmt.Errorf("%s", strings.Join(failed, "; "))
			}
			return func(context.Context) error { return nil }, nil
		}},
}
