package telemetry_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/middleware/telemetry"
)

// named returns the spans of a name that have ended.
func (s *seen) named(name string) (spans []trace.ReadOnlySpan) {
	for _, x := range s.spans.Ended() {
		if x.Name() == name {
			spans = append(spans, x)
		}
	}
	return spans
}

// linked returns the spans that a wait has links to.
func linked(x trace.ReadOnlySpan) (ids []oteltrace.SpanID) {
	for _, l := range x.Links() {
		if slices.Contains(l.Attributes, attribute.String("mortise.link", "holder")) {
			ids = append(ids, l.SpanContext.SpanID())
		}
	}
	return ids
}

// A wait is linked to the hold that it waited for, whether that has been released, has ended, or lasts.
func TestAWaitIsLinkedToTheHoldThatItWaitedFor(t *testing.T) {
	for _, kind := range []string{"lock", "read before write", "write before read", "fair"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := open(t)
				holder, waiter := mortise.Locker(c), mortise.Locker(c)
				switch rw := c.RW(); kind {
				case "read before write":
					holder, waiter = rw.Read, rw.Write
				case "write before read":
					holder, waiter = rw.Write, rw.Read
				case "fair":
					holder, waiter = c.With(mortise.Fair()), c.With(mortise.Fair())
				}
				ended := check.Value(holder.Lock(t.Context(), "n")).In(t) // no wait has to do with it
				check.Done(t, ended.Unlock(t.Context()))
				time.Sleep(time.Second)
				held := check.Value(holder.Lock(t.Context(), "n")).In(t)
				elsewhere := check.Value(holder.Lock(t.Context(), "m")).In(t)
				_, err := waiter.Lock(t.Context(), "n", mortise.WithWait(time.Second))
				check.ErrorIf(t, !errors.Is(err, mortise.ErrNotAcquired), "refused: %v", err)
				next := make(chan *mortise.Lease)
				go func() {
					l, _ := waiter.Lock(context.Background(), "n")
					next <- l
				}()
				synctest.Wait()
				check.Done(t, held.Unlock(t.Context()))
				check.Done(t, (<-next).Unlock(t.Context()))
				check.Done(t, elsewhere.Unlock(t.Context()))
				synctest.Wait()
				holds, waits := s.named("mortise.hold"), s.named("mortise.wait")
				check.FatalIf(t, len(holds) != 4 || len(waits) != 2, "%d holds and %d waits", len(holds), len(waits))
				slices.SortFunc(holds, func(a, b trace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
				for i, x := range waits {
					want := []oteltrace.SpanID{holds[1].SpanContext().SpanID()}
					check.ErrorIf(t, !slices.Equal(linked(x), want), "wait %d is linked to %v, want %v", i, linked(x), want)
				}
			})
		})
	}
}

// Of many readers, a writer's wait is linked to eight.
func TestAWaitHasEightLinksAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := open(t)
		rw := c.RW()
		var readers []*mortise.Lease
		for range 100 {
			readers = append(readers, check.Value(rw.Read.Lock(t.Context(), "n")).In(t))
		}
		done := make(chan error)
		go func() {
			done <- mortise.Do(context.Background(), rw.Write, "n", func(context.Context) error { return nil })
		}()
		synctest.Wait()
		for _, l := range readers {
			check.Done(t, l.Unlock(t.Context()))
		}
		check.NoError(t, <-done)
		n := len(linked(s.named("mortise.wait")[0]))
		check.ErrorIf(t, n < 1 || n > 8, "%d links", n)
	})
}

// With details, a wait that ended without the lock has the owner of the hold, which may be another process's.
func TestARefusedWaitHasTheOwnerOfTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holder, h := open(t, telemetry.WithSpanDetails())
		held := check.Value(holder.Lock(t.Context(), "n")).In(t)
		observer := check.Value(telemetry.New(telemetry.WithTracerProvider(h.traces), telemetry.WithSpanDetails())).In(t)
		other := check.Value(mortise.New(h.store, mortise.WithObserver(observer))).In(t)
		defer other.Close()
		_, err := other.Lock(t.Context(), "n", mortise.WithWait(2*time.Second))
		check.ErrorIf(t, !errors.Is(err, mortise.ErrNotAcquired), "refused: %v", err)
		check.Done(t, held.Unlock(t.Context()))
		of := func(span, key string) attribute.Value {
			x := h.named(span)
			check.FatalIf(t, len(x) != 1, "%d spans %s", len(x), span)
			v, _ := attributes(x[0]).Value(attribute.Key(key))
			return v
		}
		owner, said := of("mortise.hold", "mortise.owner"), of("mortise.wait", "mortise.holder")
		check.ErrorIf(t, owner.AsString() == "" || said != owner, "the wait has %v, the hold %v", said, owner)
		check.ErrorIf(t, len(linked(h.named("mortise.wait")[0])) != 0, "linked to a hold of another client")
	})
}

func attributes(x trace.ReadOnlySpan) *attribute.Set {
	set := attribute.NewSet(x.Attributes()...)
	return &set
}
