package clienttest

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

// slowly tells of releases late, and of changes not at all.
type slowly struct {
	backend.Handler
	by time.Duration
}

func (h slowly) Released(t backend.Topic) {
	time.AfterFunc(h.by, func() { h.Handler.Released(t) })
}

func (h slowly) Changed(backend.Topic) {} // a hint, which a backend may never give

// A fair request times out, its repeat is refused, and then the request arrives and is granted: the lease that the next
// ask finds counts from the request.
func TestAFairRequestThatComesAfterItsLeaseIsNoTwoHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.New()
		var n atomic.Int32
		late := make(chan struct{})
		b := spyOn(m, "Fair", hooks{"Fair.Acquire": func(c *call) error {
			if n.Add(1) == 1 {
				go func() { <-late; _ = c.run(context.Background()) }()
				time.Sleep(3 * time.Second)
				return unknownOutcome()
			}
			return c.run(c.ctx)
		}})
		b.listen = func(h backend.Handler) backend.Handler { return slowly{h, 700 * time.Millisecond} }
		c, other := on(t, b), on(t, m)
		fair := c.With(Fair())
		held := need(other.Lock(t.Context(), "x"))(t)
		w := begin(t.Context(), fair, "x", WithLease(time.Second))
		time.Sleep(3100 * time.Millisecond)
		synctest.Wait()
		must(t, held.Unlock(t.Context()))
		close(late)
		l := w.lease(t)
		next := begin(t.Context(), other, "x")
		next.lease(t)
		if l.Err() == nil {
			t.Error("the fair holder believes in its lease while another client has the lock")
		}
	})
}
