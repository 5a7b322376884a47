package mortise

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

// A waiter that was handed the lock, and does not know it yet, gives it back when its client is closed.
func TestShutdownWaitsForWhoWasHandedTheLock(t *testing.T) {
	store := memory.New()
	in, goOn := make(chan struct{}), make(chan struct{})
	a := on(t, store, WithObserver(Observer{Waiting: func(WaitingEvent) { close(in); <-goOn }}))
	b := on(t, store)
	ctx := context.Background()
	lease, err := a.Lock(ctx, "n")
	must(t, err)
	waiter := make(chan error, 1)
	go func() { _, err := a.Lock(ctx, "n"); waiter <- err }()
	<-in
	must(t, lease.Unlock(ctx))
	closed := make(chan error, 1)
	go func() { closed <- a.Shutdown(ctx) }()
	<-a.engine.Probe().Closing()
	close(goOn)
	if err := <-waiter; !errors.Is(err, ErrClosed) {
		t.Errorf("the waiter: %v, want ErrClosed", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if lease, err = b.TryLock(ctx, "n"); err != nil {
		t.Fatalf("what was handed over is left behind: %v", err)
	}
	check(t, lease.Unlock(ctx))
}

// deaf hears nothing.
type deaf struct{}

func (deaf) Watching(backend.Topic) {}
func (deaf) Released(backend.Topic) {}
func (deaf) Changed(backend.Topic)  {}
func (deaf) ChangedAll()            {}

// The first waiter leaves while the release is on its way that was to hand the lock over to it, and the
// client is put in line instead. The second then has a time at which it asks, whatever it hears.
func TestWhoComesAfterOneWhoLeftLooksInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The store serves this client's waiter once, and then the queue, and does not tell: the subscription is
		// dead and does not show it.
		sent, answer, handed := make(chan struct{}), make(chan struct{}), false
		store := memory.New()
		under := need(store.Open(deaf{}))(t)
		b := spyOn(store, "Queue", hooks{"Serve": func(c *call) error {
			if !handed {
				handed = true
				return c.run(c.ctx)
			}
			close(sent)
			<-answer
			r := c.request.(backend.ServeRequest)
			reply, err := under.Release(c.ctx, backend.ReleaseRequest{Name: r.Name, Owner: r.Owner})
			*c.reply.(*backend.ServeReply) = backend.ServeReply{Held: reply.Held, Enrolled: true}
			return err
		}})
		b.listen = func(backend.Handler) backend.Handler { return deaf{} }
		c := on(t, b)
		ctx := context.Background()
		lease := need(c.Lock(ctx, "n"))(t)
		next := make(chan *Lease, 1)
		go func() {
			lease, err := c.Lock(ctx, "n")
			if err != nil {
				t.Errorf("the first: %v", err)
			}
			next <- lease
		}()
		synctest.Wait()
		first, leave := context.WithCancel(ctx)
		left, got := make(chan error, 1), make(chan error, 1)
		go func() { _, err := c.Lock(first, "n"); left <- err }()
		synctest.Wait()
		go func() { _, err := c.Lock(ctx, "n"); got <- err }()
		time.Sleep(250 * time.Millisecond) // else nothing is sent
		must(t, lease.Unlock(ctx))
		lease = <-next
		time.Sleep(250 * time.Millisecond)
		unlocked := make(chan error, 1)
		go func() { unlocked <- lease.Unlock(ctx) }()
		<-sent
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("who leaves: %v", err)
		}
		close(answer)
		if err := <-unlocked; err != nil {
			t.Errorf("Unlock: %v", err)
		}
		select {
		case err := <-got:
			if err != nil {
				t.Errorf("the second: %v", err)
			}
		case <-time.After(2 * DefaultWatchdogTimeout):
			t.Error("the second sleeps for ever")
		}
	})
}
