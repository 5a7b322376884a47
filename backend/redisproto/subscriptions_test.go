package redisproto

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto/pubsub"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

func topic(name string) backend.Topic { return backend.Topic{Kind: backend.KindLock, Name: name} }

func open(t *testing.T, a *fakeAdapter) (*session, *recorder) {
	t.Helper()
	r := &recorder{}
	s, err := New(func() (Adapter, error) { return a, nil }).Open(r)
	check.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s.(*session), r
}

func want(t *testing.T, r *recorder, events ...string) {
	t.Helper()
	if got := r.take(); !slices.Equal(got, events) {
		t.Fatalf("heard %q, want %q", got, events)
	}
}

func TestWatchIsConfirmedAndHearsReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAdapter{}
		s, r := open(t, a)
		s.Subscribe(topic("n"))
		synctest.Wait()
		want(t, r, "watching n")
		a.publish("redisson_lock__channel:{n}", "0")
		want(t, r, "released n")
		a.publish("redisson_lock__channel:{n}", "whatever")
		want(t, r, "released n")
		a.publish("redisson_lock__channel:{n}", "00")
		want(t, r)
		s.Close()
	})
}

func TestEachWatchIsConfirmedThoughTheChannelIsSubscribedAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAdapter{}
		s, r := open(t, a)
		s.Subscribe(topic("n"))
		synctest.Wait()
		s.Subscribe(topic("n"))
		synctest.Wait()
		want(t, r, "watching n", "watching n")
		s.Unsubscribe(topic("n"))
		s.Subscribe(topic("n")) // within the linger
		synctest.Wait()
		want(t, r, "watching n")
		a.publish("redisson_lock__channel:{n}", "0")
		want(t, r, "released n")
		if c := a.sub().sent(); !slices.Equal(c, []string{"subscribe"}) {
			t.Errorf("sent %q", c)
		}
		s.Close()
	})
}

func TestNamesThatShareAChannelShareItsReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAdapter{}
		s, r := open(t, a)
		s.Subscribe(topic("n"))
		s.Subscribe(topic("{n}"))
		synctest.Wait()
		r.take()
		a.publish("redisson_lock__channel:{n}", "0")
		want(t, r, "released n", "released {n}")
		s.Unsubscribe(topic("n"))
		a.publish("redisson_lock__channel:{n}", "0")
		want(t, r, "released {n}")
		s.Close()
	})
}

func TestUnwatchUnsubscribesSoonAndTheIdleConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAdapter{}
		s, r := open(t, a)
		s.Subscribe(topic("n"))
		synctest.Wait()
		s.Unsubscribe(topic("n"))
		s.Unsubscribe(topic("n"))
		a.publish("redisson_lock__channel:{n}", "0")
		want(t, r, "watching n")
		time.Sleep(pubsub.Linger)
		synctest.Wait()
		if c := a.subscribed(); len(c) != 0 {
			t.Fatalf("still subscribed: %q", c)
		}
		sub := a.sub()
		time.Sleep(pubsub.IdleClose - time.Second)
		synctest.Wait()
		check.FatalIf(t, sub.closings() != 0, "closed too early")
		time.Sleep(time.Second)
		synctest.Wait()
		if sub.closings() != 1 {
			t.Fatalf("closed %d times", sub.closings())
		}
		s.Subscribe(topic("n"))
		synctest.Wait()
		want(t, r, "watching n")
		if a.dialled() != 2 {
			t.Errorf("dialled %d times", a.dialled())
		}
		s.Close()
	})
}

func TestALostConnectionIsRedialledAndAllIsConfirmedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAdapter{}
		s, r := open(t, a)
		for i := range 5 {
			s.Subscribe(topic(fmt.Sprint(i)))
		}
		synctest.Wait()
		r.take()
		time.Sleep(time.Minute)
		synctest.Wait()
		s.Unsubscribe(topic("4"))
		a.set(func() { a.refuse = errors.New("connection refused") })
		a.cut(errors.New("EOF"))
		time.Sleep(time.Minute)
		synctest.Wait()
		want(t, r)
		if a.dialled() < 20 || a.dialled() > 50 {
			t.Errorf("dialled %d times in a minute", a.dialled())
		}
		a.set(func() { a.refuse = nil })
		time.Sleep(pubsub.LastPause)
		synctest.Wait()
		got := r.take()
		slices.Sort(got)
		check.ErrorIf(t, fmt.Sprint(got) != "[watching 0 watching 1 watching 2 watching 3]", "heard %q", got)
		dials := a.dialled()
		time.Sleep(10 * time.Second) // it lives for a while, so the next pause is short
		synctest.Wait()
		a.cut(errors.New("EOF"))
		time.Sleep(pubsub.FirstPause)
		synctest.Wait()
		check.ErrorIf(t, a.dialled() != dials+1 || len(r.take()) != 4, "not back within %v", pubsub.FirstPause)
		s.Close()
	})
}

func TestASilentConnectionIsPingedAndGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAdapter{}
		s, r := open(t, a)
		s.Subscribe(topic("n"))
		time.Sleep(3*pubsub.Silence + time.Second)
		synctest.Wait()
		first := a.sub()
		if n := len(first.sent()); n != 4 || first.closings() != 0 {
			t.Fatalf("sent %q", first.sent())
		}
		r.take()
		a.set(func() { a.mute = true })
		time.Sleep(pubsub.Silence + pubsub.Patience - 2*time.Second)
		synctest.Wait()
		check.FatalIf(t, first.closings() != 0, "given up too early")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		a.set(func() { a.mute = false })
		check.FatalIf(t, first.closings() != 1, "not given up")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		want(t, r, "watching n")
		s.Close()
	})
}

func TestASubscribeWithoutAnswerIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAdapter{}
		a.mute = true
		s, r := open(t, a)
		s.Subscribe(topic("n"))
		time.Sleep(pubsub.Patience)
		synctest.Wait()
		a.set(func() { a.mute = false })
		time.Sleep(time.Second)
		synctest.Wait()
		want(t, r, "watching n")
		s.Close()
	})
}

// A confirmation that belongs to an earlier SUBSCRIBE says nothing when an
// UNSUBSCRIBE went out in between.
func TestALateConfirmationIsNotTakenForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAdapter{}
		a.mute = true
		s, r := open(t, a)
		s.Subscribe(topic("n"))
		synctest.Wait()
		s.Unsubscribe(topic("n"))
		time.Sleep(pubsub.Linger)
		synctest.Wait()
		s.Subscribe(topic("n"))
		synctest.Wait()
		if c := a.sub().sent(); !slices.Equal(c, []string{"subscribe", "unsubscribe", "subscribe"}) {
			t.Fatalf("sent %q", c)
		}
		a.sub().ev.Subscribed("redisson_lock__channel:{n}")
		want(t, r)
		a.sub().ev.Subscribed("redisson_lock__channel:{n}")
		want(t, r, "watching n")
		s.Close()
	})
}

func TestWhatWillNotPassIsToldToTheWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAdapter{}
		s, r := open(t, a)
		s.Subscribe(topic("n"))
		synctest.Wait()
		a.set(func() { a.refuse = serverError("NOPERM No permissions to access a channel") })
		a.cut(errors.New("EOF"))
		time.Sleep(pubsub.FirstPause)
		synctest.Wait()
		check.ErrorIf(t, len(r.failed) != 1 || !backend.FaultOf(r.failed[0]).MayHaveRun &&
			backend.FaultOf(r.failed[0]).Remedy == "", "told %v", r.failed)
		s.Close()
	})
}

func TestTenThousandWatchesAreOneConnectionAndTwoGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAdapter{}
		s, r := open(t, a)
		before := runtime.NumGoroutine()
		const n = 10_000
		for i := range n {
			s.Subscribe(topic(fmt.Sprint(i)))
		}
		synctest.Wait()
		if got := len(r.take()); got != n {
			t.Fatalf("%d confirmed", got)
		}
		if a.dialled() != 1 || runtime.NumGoroutine() > before+1 {
			t.Errorf("%d connections, %d goroutines more", a.dialled(), runtime.NumGoroutine()-before)
		}
		if c := len(a.sub().sent()); c > n/pubsub.SubscribeBatch+10 {
			t.Logf("%d SUBSCRIBE", c)
		}
		for i := range n {
			s.Unsubscribe(topic(fmt.Sprint(i)))
		}
		time.Sleep(2 * pubsub.Linger)
		synctest.Wait()
		if c := a.subscribed(); len(c) != 0 {
			t.Errorf("left behind: %d channels on the server", len(c))
		}
		s.Close()
	})
}

func TestWatchAndUnwatchAtRandomEndInWhatWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAdapter{}
		s, r := open(t, a)
		x := uint32(1)
		wanted := map[string]bool{}
		for step := range 5000 {
			x = x*1664525 + 1013904223
			name := fmt.Sprint(x >> 28)
			switch {
			case step%500 == 499:
				synctest.Wait()
				if a.sub() != nil {
					a.cut(errors.New("EOF"))
				}
			case x>>27&1 == 0:
				s.Subscribe(topic(name))
				wanted[name] = true
			default:
				s.Unsubscribe(topic(name))
				delete(wanted, name)
			}
			if step%7 == 0 {
				time.Sleep(time.Duration(x>>20&63) * time.Millisecond)
				synctest.Wait()
			}
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := a.subscribed(); len(got) != len(wanted) {
			t.Errorf("subscribed to %d channels, want %d", len(got), len(wanted))
		}
		r.take()
		for name := range wanted {
			check.ErrorIf(t, a.publish(channelOf(name), "0") != 1, "%s is not subscribed", name)
			want(t, r, "released "+name)
		}
		s.Close()
	})
}

func TestCloseEndsADialThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &hangingAdapter{}
		s, err := New(func() (Adapter, error) { return a, nil }).Open(&recorder{})
		check.NoError(t, err)
		s.Subscribe(topic("n"))
		synctest.Wait()
		s.Close()
		s.Subscribe(topic("m"))
		s.Unsubscribe(topic("n"))
	})
}
