package clienttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

// hang fills the 256 slots with acquisitions that have no answer.
func hang(ctx context.Context, c *Client) {
	for i := range 256 {
		go func() { _, _ = c.Lock(ctx, fmt.Sprintf("h%d", i)) }()
	}
	synctest.Wait()
}

// The in-flight limiter refuses a call if the store answers none. The reason is not a failure from before an answer.
func TestAnOldFailureIsNoReasonOfARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		goOn := make(chan struct{})
		b := spyOn(memory.New(), "Batch", hooks{"Acquire": func(c *call) error {
			q := c.request.(backend.AcquireRequest)
			if q.Name == "other" {
				return &backend.Fault{Err: backend.ErrWrongKind}
			}
			if hangs.Load() {
				<-goOn
			}
			return c.run(context.Background())
		}})
		c := on(t, b)
		_, err := c.Lock(t.Context(), "other")
		wants(t, err, ErrWrongKind)
		for i := range 3 {
			must(t, thenUnlock(c.Lock(t.Context(), fmt.Sprint("ok", i))))
		}
		time.Sleep(time.Hour)
		hangs.Store(true)
		ctx, cancel := context.WithCancel(context.Background())
		hang(ctx, c)
		_, err = c.Lock(t.Context(), "innocent")
		wants(t, err, ErrUnavailable)
		if errors.Is(err, ErrWrongKind) {
			t.Errorf("the refusal is of another name's kind: %v", err)
		}
		cancel()
		close(goOn)
		time.Sleep(time.Minute)
	})
}

func TestALockAllThatIsNotSentBlamesNoneOfItsNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		goOn := make(chan struct{})
		b := spyOn(memory.New(), "Batch", hooks{"Acquire": func(c *call) error {
			if hangs.Load() {
				<-goOn
			}
			return c.run(context.Background())
		}})
		c := on(t, b)
		b.Store.Occupy("z7") // another kind under the name
		_, err := c.LockAll(t.Context(), []string{"z0", "z1", "z2", "z3", "z4", "z5", "z6", "z7"})
		wants(t, err, ErrWrongKind)
		hangs.Store(true)
		ctx, cancel := context.WithCancel(context.Background())
		hang(ctx, c)
		_, err = c.LockAll(t.Context(), []string{"a", "b"}) // it panicked, with the index of z7
		wants(t, err, ErrUnavailable)
		cancel()
		close(goOn)
		time.Sleep(time.Minute)
	})
}

func TestARefusalIsNotOfTheReplicasOfAnotherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCopied()
		s.have.Store(1)
		c := on(t, s)
		for i := range 64 * 4 { // four rounds of 2 s
			go func() { _, _ = c.Lock(t.Context(), fmt.Sprintf("h%d", i), WithReplicas(2, 2*time.Second)) }()
		}
		synctest.Wait()
		_, err := c.Lock(t.Context(), "innocent", WithReplicas(1, time.Second))
		if errors.Is(err, ErrNotReplicated) {
			t.Errorf("a call for one replica, which is there, was not sent, and is told: %v", err)
		}
		time.Sleep(time.Minute)
	})
}

// Callers that spin rest after a refusal of the held cache. They took the slots of other calls meanwhile: 600 of them
// made others wait for 2 to 6 ms.
func TestACallerThatRestsHasNoSlot(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
		b := spyOn(s, "Batch", nil)
		b.hook("Acquire", func(c *call) error {
			if c.request.(backend.AcquireRequest).Name == "free" {
				return c.run(c.ctx)
			}
			*c.reply.(*backend.AcquireReply) = backend.AcquireReply{Remaining: time.Minute, Rest: true}
			return nil
		})
		b.hook("AcquireAll", func(c *call) error {
			*c.reply.(*[]backend.AcquireReply) = []backend.AcquireReply{{Remaining: time.Minute, Rest: true}, {}}
			return nil
		})
		c := on(t, b)
		began := time.Now()
		var rested sync.WaitGroup
		for i := range 600 {
			rested.Go(func() {
				err := errorOf(c.TryLock(t.Context(), "busy"))
				if i%2 == 0 {
					err = errorOf(c.TryLockAll(t.Context(), []string{"busy", "too"}))
				}
				if !errors.Is(err, ErrNotAcquired) || time.Since(began) < backend.Rest {
					t.Errorf("%v after %v", err, time.Since(began))
				}
			})
		}
		synctest.Wait()
		if must(t, errorOf(c.TryLock(t.Context(), "free"))); time.Since(began) > 0 {
			t.Errorf("a free lock was granted after %v", time.Since(began))
		}
		rested.Wait()
	})
}
