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

func open(t *testing.T, a Adapter) (*session, *recorder) {
	t.Helper()
	r := &recorder{}
	s := check.Value(New(func() (Adapter, error) { return a, nil }).Open(r)).In(t)
	t.Cleanup(func() { _ = s.Close() })
	return s.(*session), r
}

// bubble runs a test of a session in a time of its own, and closes the session at its end.
func bubble(t *testing.T, test func(t *testing.T, a *fakeAdapter, s *session, r *recorder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAdapter{}
		s, r := open(t, a)
		test(t, a, s, r)
		s.Close()
	})
}

// pass lets time pass, and all that is due then be done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// wantAll is want in any order; events are sorted.
func wantAll(t *testing.T, r *recorder, events ...string) {
	t.Helper()
	got := r.take()
	slices.Sort(got)
	check.FatalIf(t, !slices.Equal(got, events), "heard %q, want %q", got, events)
}

func want(t *testing.T, r *recorder, events ...string) {
	t.Helper()
	got := r.take()
	check.FatalIf(t, !slices.Equal(got, events), "heard %q, want %q", got, events)
}

// channelsOf are the channels that a session subscribes for a plain lock.
func channelsOf(s *session, name string) []string {
	channel := channelOf(name)
	return []string{channel, channel + ":mortise", channel + ":to:" + s.tag}
}

// A plain lock is watched once all its channels are, in whatever order they are confirmed.
func TestAWatchIsConfirmedByTheLastOfItsChannels(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		bubble(t, func(t *testing.T, a *fakeAdapter, s *session, r *recorder) {
			a.mute = true
			s.Subscribe(topic("n"))
			synctest.Wait()
			for i, at := range order {
				want(t, r)
				check.ErrorIf(t, (queue{s.core}).listens(topic("n")), "after %d of the channels it is said to listen", i)
				a.sub().ev.Subscribed(channelsOf(s, "n")[at])
			}
			want(t, r, "watching n")
		})
	}
}

func TestWatchIsConfirmedAndHearsReleases(t *testing.T) {
	bubble(t, func(t *testing.T, a *fakeAdapter, s *session, r *recorder) {
		s.Subscribe(topic("n"))
		synctest.Wait()
		want(t, r, "watching n")
		a.publish("redisson_lock__channel:{n}", "0")
		want(t, r, "released n")
		a.publish("redisson_lock__channel:{n}", "whatever")
		want(t, r, "released n")
		a.publish("redisson_lock__channel:{n}", "00")
		a.publish("redisson_lock__channel:{n}", "000")
		want(t, r)
	})
}

func TestEachWatchIsConfirmedThoughTheChannelIsSubscribedAlready(t *testing.T) {
	bubble(t, func(t *testing.T, a *fakeAdapter, s *session, r *recorder) {
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
		c := a.sub().sent()
		check.ErrorIf(t, !slices.Equal(c, []string{"subscribe"}), "sent %q", c)
	})
}

func TestNamesThatShareAChannelShareItsReleases(t *testing.T) {
	bubble(t, func(t *testing.T, a *fakeAdapter, s *session, r *recorder) {
		s.Subscribe(topic("n"))
		s.Subscribe(topic("{n}"))
		synctest.Wait()
		r.take()
		a.publish("redisson_lock__channel:{n}", "0")
		want(t, r, "released n", "released {n}")
		s.Unsubscribe(topic("n"))
		a.publish("redisson_lock__channel:{n}", "0")
		want(t, r, "released {n}")
	})
}

func TestUnwatchUnsubscribesSoonAndTheIdleConnectionIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, a *fakeAdapter, s *session, r *recorder) {
		s.Subscribe(topic("n"))
		synctest.Wait()
		s.Unsubscribe(topic("n"))
		s.Unsubscribe(topic("n"))
		a.publish("redisson_lock__channel:{n}", "0")
		want(t, r, "watching n")
		pass(pubsub.Linger)
		c := a.subscribed()
		check.FatalIf(t, len(c) != 0, "still subscribed: %q", c)
		sub := a.sub()
		pass(pubsub.IdleClose - time.Second)
		check.FatalIf(t, sub.closings() != 0, "closed too early")
		pass(time.Second)
		if sub.closings() != 1 {
			t.Fatalf("closed %d times", sub.closings())
		}
		s.Subscribe(topic("n"))
		synctest.Wait()
		want(t, r, "watching n")
		if a.dialled() != 2 {
			t.Errorf("dialled %d times", a.dialled())
		}
	})
}

func TestALostConnectionIsRedialledAndAllIsConfirmedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, a *fakeAdapter, s *session, r *recorder) {
		for i := range 5 {
			s.Subscribe(topic(fmt.Sprint(i)))
		}
		synctest.Wait()
		r.take()
		pass(time.Minute)
		s.Unsubscribe(topic("4"))
		a.set(func() { a.refuse = errors.New("connection refused") })
		a.cut(errors.New("EOF"))
		pass(time.Minute)
		want(t, r)
		if a.dialled() < 20 || a.dialled() > 50 {
			t.Errorf("dialled %d times in a minute", a.dialled())
		}
		a.set(func() { a.refuse = nil })
		pass(pubsub.LastPause)
		wantAll(t, r, "watching 0", "watching 1", "watching 2", "watching 3")
		dials := a.dialled()
		pass(10 * time.Second) // it lives for a while, so the next pause is short
		a.cut(errors.New("EOF"))
		pass(pubsub.FirstPause)
		check.ErrorIf(t, a.dialled() != dials+1 || len(r.take()) != 4, "not back within %v", pubsub.FirstPause)
	})
}

func TestASilentConnectionIsPingedAndGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, a *fakeAdapter, s *session, r *recorder) {
		s.Subscribe(topic("n"))
		pass(3*pubsub.Silence + time.Second)
		first := a.sub()
		if n := len(first.sent()); n != 4 || first.closings() != 0 {
			t.Fatalf("sent %q", first.sent())
		}
		r.take()
		a.set(func() { a.mute = true })
		pass(pubsub.Silence + pubsub.Patience - 2*time.Second)
		check.FatalIf(t, first.closings() != 0, "given up too early")
		pass(2 * time.Second)
		a.set(func() { a.mute = false })
		check.FatalIf(t, first.closings() != 1, "not given up")
		pass(20 * time.Second)
		want(t, r, "watching n")
	})
}

func TestASubscribeWithoutAnswerIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, a *fakeAdapter, s *session, r *recorder) {
		a.mute = true
		s.Subscribe(topic("n"))
		pass(pubsub.Patience)
		a.set(func() { a.mute = false })
		pass(time.Second)
		want(t, r, "watching n")
	})
}

// A confirmation that belongs to an earlier SUBSCRIBE says nothing when an
// UNSUBSCRIBE went out in between.
func TestALateConfirmationIsNotTakenForAnother(t *testing.T) {
	bubble(t, func(t *testing.T, a *fakeAdapter, s *session, r *recorder) {
		a.mute = true
		s.Subscribe(topic("n"))
		synctest.Wait()
		s.Unsubscribe(topic("n"))
		pass(pubsub.Linger)
		s.Subscribe(topic("n"))
		synctest.Wait()
		c := a.sub().sent()
		check.FatalIf(t, !slices.Equal(c, []string{"subscribe", "unsubscribe", "subscribe"}), "sent %q", c)
		confirm := func() {
			for _, channel := range channelsOf(s, "n") {
				a.sub().ev.Subscribed(channel)
			}
		}
		confirm()
		want(t, r)
		confirm()
		want(t, r, "watching n")
	})
}

func TestWhatWillNotPassIsToldToTheWatcher(t *testing.T) {
	bubble(t, func(t *testing.T, a *fakeAdapter, s *session, r *recorder) {
		s.Subscribe(topic("n"))
		synctest.Wait()
		a.set(func() { a.refuse = serverError("NOPERM No permissions to access a channel") })
		a.cut(errors.New("EOF"))
		pass(pubsub.FirstPause)
		check.ErrorIf(t, len(r.failed) != 1 || !backend.FaultOf(r.failed[0]).MayHaveRun &&
			backend.FaultOf(r.failed[0]).Remedy == "", "told %v", r.failed)
	})
}

// A lock cannot be watched without any of its channels; another lock can.
func TestARefusedChannelIsToldAsItsLocks(t *testing.T) {
	for at := range 3 {
		bubble(t, func(t *testing.T, a *fakeAdapter, s *session, r *recorder) {
			a.set(func() { a.forbidden = channelsOf(s, "n")[at] })
			s.Subscribe(topic("m"))
			s.Subscribe(topic("n"))
			pass(time.Second)
			s.Unsubscribe(topic("n"))
			pass(time.Second)
			heard := r.take()
			check.ErrorIf(t, slices.Contains(heard, "watching n") || !slices.Contains(heard, "watching m") ||
				!(queue{s.core}).listens(topic("m")), "heard %q", heard)
			check.ErrorIf(t, len(r.deaf) == 0 || slices.ContainsFunc(r.deaf, func(n string) bool { return n != "n" }),
				"told that these cannot be watched: %q", r.deaf)
		})
	}
}

func TestTenThousandWatchesAreOneConnectionAndTwoGoroutines(t *testing.T) {
	bubble(t, func(t *testing.T, a *fakeAdapter, s *session, r *recorder) {
		before := runtime.NumGoroutine()
		const n = 10_000
		for i := range n {
			s.Subscribe(topic(fmt.Sprint(i)))
		}
		synctest.Wait()
		got := len(r.take())
		check.FatalIf(t, got != n, "%d confirmed", got)
		if a.dialled() != 1 || runtime.NumGoroutine() > before+1 {
			t.Errorf("%d connections, %d goroutines more", a.dialled(), runtime.NumGoroutine()-before)
		}
		if c := len(a.sub().sent()); c > n/pubsub.SubscribeBatch+10 {
			t.Logf("%d SUBSCRIBE", c)
		}
		for i := range n {
			s.Unsubscribe(topic(fmt.Sprint(i)))
		}
		pass(2 * pubsub.Linger)
		c := a.subscribed()
		check.ErrorIf(t, len(c) != 0, "left behind: %d channels on the server", len(c))
	})
}

func TestWatchAndUnwatchAtRandomEndInWhatWasAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T, a *fakeAdapter, s *session, r *recorder) {
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
				pass(time.Duration(x>>20&63) * time.Millisecond)
			}
		}
		pass(5 * time.Second)
		got := a.subscribed()
		check.Equal(t, "subscribed to %d channels", len(got), 3*len(wanted))
		r.take()
		for name := range wanted {
			check.ErrorIf(t, a.publish(channelOf(name), "0") != 1, "%s is not subscribed", name)
			want(t, r, "released "+name)
		}
	})
}

func TestCloseEndsADialThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &hangingAdapter{}
		s := check.Value(New(func() (Adapter, error) { return a, nil }).Open(&recorder{})).In(t)
		s.Subscribe(topic("n"))
		synctest.Wait()
		s.Close()
		s.Subscribe(topic("m"))
		s.Unsubscribe(topic("n"))
	})
}

// The client's address may have moved to another server, while the subscription connection stays at the former master.
func TestTheReplyOfAReplicaOpensTheSubscriptionConnectionAgain(t *testing.T) {
	bubble(t, func(t *testing.T, a *fakeAdapter, s *session, r *recorder) {
		refused := func() {
			_, err := s.Release(t.Context(), backend.ReleaseRequest{Name: "n", Owner: "o"})
			check.ErrorIf(t, err == nil, "a replica releases")
		}
		dials := func(want int) {
			t.Helper()
			got := a.dialled()
			check.FatalIf(t, got != want, "%d connections, want %d", got, want)
		}
		s.Subscribe(topic("n"))
		pass(time.Minute)
		want(t, r, "watching n")
		a.err = serverError("READONLY You can't write against a read only replica.")
		first := a.sub()
		for range 100 {
			refused()
		}
		pass(pubsub.FirstPause)
		dials(2)
		want(t, r, "watching n")
		check.ErrorIf(t, first.closings() != 1, "the former connection is open")
		for range 29 { // the address has not moved yet
			refused()
			pass(pubsub.LastPause / 30)
		}
		dials(2)
		pass(pubsub.LastPause)
		dials(3) // after the last refusal
		pass(time.Minute)
		dials(3)
		want(t, r, "watching n")
	})
}
