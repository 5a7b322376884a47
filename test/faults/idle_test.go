package faults_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// nat is a relay that drops connections silently, as a router does that has forgotten an idle one: both ends believe
// that it is open, and nothing arrives any more.
type nat struct {
	*redistest.Relay
	opened, dropped atomic.Int64 // how many connections there were, and how many of them are dropped
}

func newNAT(t testing.TB, upstream string) *nat {
	t.Helper()
	n := new(nat)
	n.Relay = redistest.NewRelay(t, upstream, func(l *redistest.Line) (up, down func()) {
		n.opened.Add(1)
		carry := func(to, from net.Conn) func() {
			return func() {
				for c := range l.Chunks(from) {
					if int64(l.Number) <= n.dropped.Load() {
						<-l.Dead()
						return
					}
					if _, err := to.Write(c.Data); err != nil {
						return
					}
				}
			}
		}
		return carry(l.Server, l.Client), carry(l.Client, l.Server)
	})
	return n
}

// dropAll drops all connections that are open now.
func (n *nat) dropAll() { n.dropped.Store(n.opened.Load()) }

// A call that began on such a connection is repeated on another one, with the time-outs that go-redis has by default.
func TestRule12_IdleConnectionsThatAreDroppedSilentlyCostACallTimeAndNoError(t *testing.T) {
	for what, call := range map[string]func(t *testing.T, c *mortise.Client, held *mortise.Lease) error{
		"Lock": func(t *testing.T, c *mortise.Client, _ *mortise.Lease) error {
			return harness.Err(c.Lock(within(t, patience), "n", mortise.WithWait(15*time.Second)))
		},
		"TryLock": func(t *testing.T, c *mortise.Client, _ *mortise.Lease) error {
			return harness.Err(c.TryLock(within(t, patience), "n"))
		},
		"a re-entry": func(t *testing.T, c *mortise.Client, held *mortise.Lease) error {
			return harness.Err(c.Lock(held.Context(), "held", mortise.WithWait(15*time.Second)))
		},
		"Unlock": func(t *testing.T, _ *mortise.Client, held *mortise.Lease) error {
			return held.Unlock(within(t, patience))
		},
	} {
		t.Run(what, func(t *testing.T) {
			eachParallel(t, func(t *testing.T, s stack) {
				srv := redistest.Start(t)
				n := newNAT(t, srv.Addr())
				c := s.client(t, n.Addr(), config{Timeout: 3 * time.Second})
				held := lock(t, c, within(t, patience), "held")
				n.dropAll()
				harness.Check(t, call(t, c, held))
			})
		})
	}
}
