package examples

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/leader"
	"github.com/mortise-go/mortise/quorum"
	"github.com/mortise-go/mortise/semaphore"
)

// The client logs where its user called it, and the packages below internal are no users: the tests of this file are
// here, and not in internal/clienttest.

// holdLog is a logger whose lines about long holds are kept.
type holdLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *holdLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *holdLog) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// lines returns the lines about long holds, and forgets them.
func (l *holdLog) lines() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, "lock held for longer") {
			all = append(all, line)
		}
	}
	l.buf.Reset()
	return all
}

// here is the line of its caller, as a log line names it.
func here() string {
	_, file, line, _ := runtime.Caller(1)
	return fmt.Sprintf("%s:%d github.com/mortise-go/mortise/examples.", file, line)
}

// Findings U3: an Unlock that was forgotten is said after ten minutes, once, with where the lock was locked.
func TestAHoldThatLastsLongIsLoggedWithItsCallSite(t *testing.T) {
	type taking struct {
		at   string
		take func(ctx context.Context, c *mortise.Client) error
	}
	two := []string{"n", "n2"}
	for kind, x := range map[string]taking{
		"lock":  {here(), func(ctx context.Context, c *mortise.Client) error { return second(c.Lock(ctx, "n")) }},
		"try":   {here(), func(ctx context.Context, c *mortise.Client) error { return second(c.TryLock(ctx, "n")) }},
		"lease": {here(), func(ctx context.Context, c *mortise.Client) error { return second(c.Lock(ctx, "n", hour)) }},
		"read":  {here(), func(ctx context.Context, c *mortise.Client) error { return second(c.RW().Read.Lock(ctx, "n")) }},
		"all":   {here(), func(ctx context.Context, c *mortise.Client) error { return second(c.LockAll(ctx, two)) }},
		"one":   {here(), func(ctx context.Context, c *mortise.Client) error { return second(c.LockAll(ctx, two[:1])) }},
		"fair":  {here(), func(ctx context.Context, c *mortise.Client) error { return second(kind(c).Lock(ctx, "n")) }},
		"permit": {here(), func(ctx context.Context, c *mortise.Client) error {
			_, err := semaphore.New(c, "n", 2).Acquire(ctx, 2)
			return err
		}},
		"do": {here(), func(ctx context.Context, c *mortise.Client) error {
			go func() {
				mortise.Do(ctx, c, "n", func(ctx context.Context) error { <-ctx.Done(); return nil })
			}()
			return nil
		}},
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := new(holdLog)
				c, err := mortise.New(memory.New(), mortise.WithLogger(log.logger()))
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer c.Close()
				defer cancel()
				if err := x.take(ctx, c); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10*time.Minute - time.Second)
				if got := log.lines(); len(got) != 0 {
					t.Errorf("before ten minutes: %q", got)
				}
				time.Sleep(20 * time.Minute)
				got := log.lines()
				file, _, _ := strings.Cut(x.at, ":")
				holds := 1
				if kind == "all" { // its second may be told apart, a second later
					holds = 2
				}
				if holdsTold(got) != holds || !strings.Contains(got[0], file) || !strings.Contains(got[0], "examples.") ||
					!strings.Contains(got[0], "name=n") || !strings.Contains(got[0], "held=10m") {
					t.Errorf("after half an hour: %q", got)
				}
				line, severalLines := strings.Fields(x.at)[0], kind == "permit" || kind == "do"
				if !severalLines && !strings.Contains(strings.Join(got, ""), line) {
					t.Errorf("logged %q, want the call at %s", got, line)
				}
			})
		})
	}
}

func second(_ *mortise.Lease, err error) error { return err }

// holdsTold is how many holds the lines are about.
func holdsTold(lines []string) (holds int) {
	for _, line := range lines {
		n := 1
		if _, rest, several := strings.Cut(line, " leases="); several {
			fmt.Sscan(rest, &n)
		}
		holds += n
	}
	return holds
}

var hour = mortise.WithLease(time.Hour)

func kind(c *mortise.Client) mortise.Locker {
	return c.With(mortise.Fair())
}

func TestHoldWarningIsSetAndSwitchedOff(t *testing.T) {
	for _, x := range []struct {
		opts []mortise.ClientOption
		want int
	}{
		{[]mortise.ClientOption{mortise.WithHoldWarning(time.Minute)}, 1},
		{[]mortise.ClientOption{mortise.WithHoldWarning(0)}, 0},
		{[]mortise.ClientOption{mortise.WithHoldWarning(math.MaxInt64)}, 0},
		{nil, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			log := new(holdLog)
			opts := append(x.opts, mortise.WithLogger(log.logger()), mortise.WithName("billing"))
			c, err := mortise.New(memory.New(), opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			time.Sleep(time.Minute) // the client's clock begins at zero
			lease, err := c.Lock(t.Context(), "n")
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Minute)
			got := log.lines()
			if len(got) != x.want || len(got) > 0 && !strings.Contains(got[0], "client=billing") {
				t.Errorf("after 5 minutes: %q, want %d lines", got, x.want)
			}
			lease.Unlock(t.Context())
			time.Sleep(time.Hour)
			if got := log.lines(); len(got) != 0 {
				t.Errorf("after Unlock: %q", got)
			}
		})
	}
	if _, err := mortise.New(memory.New(), mortise.WithHoldWarning(-1)); !errors.Is(err, mortise.ErrInvalid) {
		t.Errorf("WithHoldWarning(-1): %v", err)
	}
}

// A hold that is unlocked and a hold that is entered again: only what lasts is said.
func TestAReentryThatLastsLongIsLoggedByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(holdLog)
		c, err := mortise.New(memory.New(), mortise.WithLogger(log.logger()), mortise.WithHoldWarning(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		outer, err := c.Lock(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		inner, err := c.Lock(outer.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		at := here()
		time.Sleep(40 * time.Second)
		if got := log.lines(); len(got) != 1 {
			t.Errorf("after 70 s of the outer hold: %q", got)
		}
		inner.Unlock(t.Context())
		time.Sleep(time.Hour)
		if got := log.lines(); len(got) != 0 {
			t.Errorf("after the inner hold: %q, at %s", got, at)
		}
		outer.Unlock(t.Context())
	})
}

// The parts of a quorum are acquired by goroutines of this module: their call site is that of the whole.
func TestAQuorumsHoldIsLoggedWithItsCallSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs, clients := [3]holdLog{}, [3]*mortise.Client{}
		for i := range clients {
			opts := []mortise.ClientOption{quorum.WithRejoinDelay(0)}
			if i > 0 { // the first has no logger
				opts = append(opts, mortise.WithLogger(logs[i].logger()))
			}
			c, err := mortise.New(memory.New(), opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			clients[i] = c
		}
		q, err := quorum.New(clients[:]...)
		if err != nil {
			t.Fatal(err)
		}
		at := here()
		lease, err := q.Lock(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Unlock(t.Context())
		time.Sleep(time.Hour)
		file, _, _ := strings.Cut(at, ":")
		for i := range logs[1:] {
			if got := logs[i+1].lines(); len(got) != 1 || !strings.Contains(got[0], file) {
				t.Errorf("client %d logged %q, want one line with a call in %s", i+1, got, file)
			}
		}
	})
}

// A leader holds long by design: a hold that has proclaimed is not logged, neither while it lasts nor when it resigns.
func TestAHoldThatHasProclaimedIsNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, log := t.Context(), new(holdLog)
		c, err := mortise.New(memory.New(), mortise.WithLogger(log.logger()), mortise.WithHoldWarning(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		led := make(chan error, 1)
		go func() {
			led <- leader.Run(ctx, c, "led", func(context.Context, leader.Term) error {
				time.Sleep(2 * time.Hour)
				return nil
			})
		}()
		told, err := c.Lock(ctx, "told")
		if err != nil {
			t.Fatal(err)
		}
		silent, err := c.Lock(ctx, "silent")
		if err != nil {
			t.Fatal(err)
		}
		if err := leader.Proclaim(ctx, told, "host:1"); err != nil {
			t.Fatal(err)
		}
		if err := leader.Proclaim(ctx, silent, ""); err != nil { // which proclaims nothing
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := log.lines(); len(got) != 1 || !strings.Contains(got[0], "name=silent") {
			t.Errorf("after an hour: %q, want the hold that has proclaimed nothing", got)
		}
		if err := leader.Proclaim(ctx, told, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if err := <-led; err != nil {
			t.Errorf("the leader: %v", err)
		}
		told.Unlock(ctx)
		silent.Unlock(ctx)
		time.Sleep(time.Second)
		if got := log.lines(); len(got) != 0 {
			t.Errorf("after the resignation: %q", got)
		}
	})
}

// The call site costs no allocation.
func TestAHoldWarningCostsNoAllocation(t *testing.T) {
	allocations := func(opts ...mortise.ClientOption) float64 {
		c, err := mortise.New(memory.New(), opts...)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return testing.AllocsPerRun(200, func() {
			lease, err := c.Lock(t.Context(), "n")
			if err != nil {
				t.Fatal(err)
			}
			lease.Unlock(t.Context())
		})
	}
	log := mortise.WithLogger(slog.New(slog.DiscardHandler))
	with, without := allocations(log), allocations(log, mortise.WithHoldWarning(0))
	if with > without {
		t.Errorf("%.0f allocations with a warning, %.0f without", with, without)
	}
}

func BenchmarkLockWithHoldWarning(b *testing.B) {
	for name, d := range map[string]time.Duration{"on": time.Minute, "off": 0} {
		b.Run(name, func(b *testing.B) {
			log := mortise.WithLogger(slog.New(slog.DiscardHandler))
			c, err := mortise.New(memory.New(), log, mortise.WithHoldWarning(d))
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			for b.Loop() {
				lease, err := c.Lock(b.Context(), "n")
				if err != nil {
					b.Fatal(err)
				}
				lease.Unlock(b.Context())
			}
		})
	}
}
