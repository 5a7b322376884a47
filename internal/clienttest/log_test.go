package clienttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/middleware/delegation"
)

// An event of many leases is one line a second, with their number.
func TestTheLogHasOneLineASecondForManyLeases(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		log, lines := recorder()
		c := open(WithLogger(log))
		const leases = 2000
		for i := range leases {
			must(t, errorOf(c.Lock(t.Context(), fmt.Sprint(i))))
		}
		time.Sleep(9 * time.Second)
		s.SetDown(errors.New("gone"))
		time.Sleep(12 * time.Second)
		got := lines()
		if len(got) < 5 || len(got) > 13 {
			t.Errorf("%d lines in 12 s, of %d leases whose renewals fail; want one a second", len(got), leases)
		}
		for _, line := range got[1:] {
			if !contains(line, "leases=") || !contains(line, "renewal failed") || !contains(line, "gone") {
				t.Errorf("%q", line)
			}
		}
		time.Sleep(time.Minute)
		// Renewals that failed in the last second may be summed up in the same instant.
		got = lines()
		if last := got[len(got)-2:]; !contains(strings.Join(last, "\n"), "lease ended without Unlock") {
			t.Errorf("the last lines are %q", last)
		}
	})
}

// The number in a line is that of the leases, and not of the attempts. A line waits for up to a second, and is not
// logged any more once the lease is renewed, released or lost.
func TestFailedRenewalsOfALeaseAreLoggedWhileTheyAreRetried(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, s *memory.Store, l *Lease){
		"renewed": func(t *testing.T, s *memory.Store, l *Lease) { s.SetDown(nil) },
		"released": func(t *testing.T, s *memory.Store, l *Lease) {
			s.SetDown(nil)
			must(t, l.Unlock(t.Context()))
		},
		"lost": func(_ *testing.T, _ *memory.Store, l *Lease) { <-l.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				log, lines := recorder()
				l := need(open(WithLogger(log)).Lock(t.Context(), "x"))(t)
				s.SetDown(errors.New("gone"))
				time.Sleep(10*time.Second + 350*time.Millisecond) // failed at 0, 100 and 300 ms
				end(t, s, l)
				time.Sleep(time.Minute)
				got := lines()
				for i, line := range got {
					if contains(line, "leases=") {
						t.Errorf("of one lease: %s", line)
					}
					if i > 0 && contains(line, "renewal failed") && (name != "lost" || contains(got[i-1], "lease ended")) {
						t.Errorf("logged too late: %s", line)
					}
				}
				if len(got) == 0 || !contains(got[0], "renewal failed") {
					t.Errorf("logged %q", got)
				}
			})
		})
	}
}

func TestALongWaitForAHolderOfTheSameClientIsLogged(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		log, lines := recorder()
		c := open(WithLogger(log))
		must(t, errorOf(c.Lock(t.Context(), "x")))
		wants(t, errorOf(c.Lock(t.Context(), "x", WithWait(time.Minute))), ErrNotAcquired)
		if got := lines(); len(got) != 1 {
			t.Errorf("logged %q, want one line", got)
		}
	})
}

// A name may be chosen by another party; a long one is cut.
func TestALongNameFloodsNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		all := slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})
		client := on(t, memory.New(), WithLogger(slog.New(all)))
		lease := need(client.Lock(context.Background(), "line\nfeed"+strings.Repeat("x", 60_000), WithLease(MinLease)))(t)
		<-lease.Context().Done()
		synctest.Wait()
		if out := log.String(); strings.Count(out, "\n") != 1 || !strings.Contains(out, "name=") || len(out) > 1000 {
			t.Errorf("%d bytes, %d lines: %.300s", len(out), strings.Count(out, "\n"), out)
		}
	})
}

// An owner in a delegation comes from another service: it forges no line of a log.
func TestAForeignOwnerForgesNoLine(t *testing.T) {
	c := on(t, memory.New())
	for _, owner := range []string{"a\nlevel=ERROR msg=forged:1", "a\x1b[2J:1"} {
		_, err := delegation.NewContext(context.Background(), c, delegation.Delegation{Name: "n", Owner: owner, Hold: 1})
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%q was accepted: %v", owner, err)
		}
	}
	ctx, err := delegation.NewContext(context.Background(), c, delegation.Delegation{Name: "n",
		Owner: "web \"1\" holds\u2028it:1", Hold: 1})
	must(t, err)
	_, err = c.TryLock(ctx, "n")
	if !errors.Is(err, delegation.ErrEnded) || !strings.Contains(err.Error(), `"web \"1\" holds\u2028it:1"`) {
		t.Errorf("the owner is not quoted: %v", err)
	}
	if _, err := New(memory.New(), WithID("a\nb")); !errors.Is(err, ErrInvalid) {
		t.Errorf("WithID with a new line: %v", err)
	}
}
