package redisproto

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

func TestOpenTellsWhatIsWrong(t *testing.T) {
	wrong := errors.New("no client")
	if _, err := New(func() (Adapter, error) { return nil, wrong }).Open(&recorder{}); !errors.Is(err, wrong) {
		t.Error(err)
	}
	if _, err := New(func() (Adapter, error) { return &fakeAdapter{}, nil }).Open(nil); err == nil {
		t.Error("a nil handler was taken")
	}
}

func TestStrangeRepliesAreFaults(t *testing.T) {
	ctx := t.Context()
	a := &fakeAdapter{}
	s, _ := open(t, a)
	check := func(what string, err error) {
		t.Helper()
		var f *backend.Fault
		check.ErrorIf(t, !errors.As(err, &f) || !f.MayHaveRun || f.Remedy == "", "%s: %v", what, err)
	}
	for _, n := range []int64{-2, math.MinInt64} {
		a.int = n
		_, err := s.Acquire(ctx, backend.AcquireRequest{Name: "n", Owner: "o"})
		check("acquire", err)
	}
	for _, n := range []int64{-1, 2} {
		a.int = n
		_, err := s.Release(ctx, backend.ReleaseRequest{Name: "n", Owner: "o"})
		check("release", err)
		_, err = s.ForceRelease(ctx, backend.ForceRequest{Name: "n"})
		check("force release", err)
	}
	for _, ints := range [][]int64{nil, {0}, {0, 1, 2}, {-7, 0}} {
		a.ints = ints
		_, err := s.Acquire(ctx, backend.AcquireRequest{Name: "n", Owner: "o", Fenced: true})
		check("acquire fenced", err)
		_, err = s.SetHolds(ctx, backend.HoldsRequest{Name: "n", Owner: "o"})
		check("reenter", err)
	}
	for _, strings := range [][]string{nil, {"x"}, {"1", "2"}, {"-3"}, {""}} {
		a.strings = strings
		_, err := s.Inspect(ctx, "n")
		check("inspect", err)
	}
	a.renew = func(_ []RenewItem, out []BatchReply) { out[0] = BatchReply{Value: 7} }
	out := make([]backend.RenewResult, 1)
	s.Renew(ctx, []backend.RenewRequest{{Name: "n", Owner: "o"}}, out)
	check("renew", out[0].Err)
}

func TestInspectTakesAnyHash(t *testing.T) {
	a := &fakeAdapter{}
	s, _ := open(t, a)
	for _, c := range []struct {
		reply []string
		want  backend.Record
	}{
		{[]string{"-2"}, backend.Record{}},
		{[]string{"1500", "c:1", "2"}, backend.Record{Held: true, Owner: "c:1", Holds: 2,
			Remaining: 1500 * time.Millisecond}},
		{[]string{"-1", "c:1", "1"}, backend.Record{Held: true, Owner: "c:1", Holds: 1, Remaining: -1}},
		{[]string{"9", "marker", "x", "c:1", "1"},
			backend.Record{Held: true, Owner: "c:1", Holds: 1, Remaining: 9 * time.Millisecond}},
		{[]string{"9", "c:1", "99999999999999999999999"}, backend.Record{Held: true, Remaining: 9 * time.Millisecond}},
		{[]string{"9", "c:1", "-4"}, backend.Record{Held: true, Remaining: 9 * time.Millisecond}},
		{[]string{"9", "mortise:reserved:ptag:1", "-"}, backend.Record{Reserved: true}},
		{[]string{"9", "mortise:reserved:ptag:1", "-", "c:1", "1"},
			backend.Record{Held: true, Owner: "c:1", Holds: 1, Remaining: 9 * time.Millisecond}},
		{[]string{"9223372036854775807", "c:1", "1"},
			backend.Record{Held: true, Owner: "c:1", Holds: 1, Remaining: -1}},
	} {
		a.strings = c.reply
		got, err := s.Inspect(t.Context(), "n")
		check.ErrorIf(t, err != nil || got != c.want, "%q: %+v %v", c.reply, got, err)
	}
	a.strings = []string{"9", "mode", "read", "c:1", "1"}
	_, err := s.Inspect(t.Context(), "n")
	check.ErrorIf(t, !errors.Is(err, backend.ErrWrongKind), "%v", err)
}

func TestRenewSplitsAndMapsBack(t *testing.T) {
	a := &fakeAdapter{}
	s, _ := open(t, a)
	var batches []int
	a.renew = func(items []RenewItem, out []BatchReply) {
		batches = append(batches, len(items))
		for i, it := range items {
			switch {
			case it.Lock == "300":
				out[i].Err = serverError("LOADING Redis is loading the dataset in memory")
			case it.Lease == 0:
				out[i].Value = 0
			default:
				out[i].Value = 1
			}
		}
	}
	in := make([]backend.RenewRequest, 600)
	out := make([]backend.RenewResult, 600)
	for i := range in {
		in[i] = backend.RenewRequest{Name: fmt.Sprint(i), Owner: "o", Lease: time.Duration(i%2) * time.Second}
	}
	s.Renew(t.Context(), in, out)
	check.ErrorIf(t, !slices.Equal(batches, []int{256, 256, 88}), "batches %v", batches)
	for i, r := range out {
		if i == 300 {
			f := backend.FaultOf(r.Err)
			check.ErrorIf(t, !f.Temporary || f.MayHaveRun, "%+v", f)
			continue
		}
		check.FatalIf(t, r.Err != nil || r.Held != (i%2 == 1), "%d: %+v", i, r)
	}
	s.Renew(t.Context(), nil, nil)
}

func TestAfterCloseNothingIsSent(t *testing.T) {
	a := &fakeAdapter{renew: func([]RenewItem, []BatchReply) { t.Error("sent") }}
	a.acquire = func(context.Context, AcquireArgs) (int64, error) {
		t.Error("sent")
		return 0, nil
	}
	s, _ := open(t, a)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Acquire(ended, backend.AcquireRequest{Name: "n", Owner: "o"})
	f := backend.FaultOf(err)
	check.ErrorIf(t, !errors.Is(err, context.Canceled) || f.MayHaveRun, "%+v", f)
	s.Close()
	s.Close()
	_, err = s.Acquire(t.Context(), backend.AcquireRequest{Name: "n", Owner: "o"})
	out := make([]backend.RenewResult, 1)
	s.Renew(t.Context(), make([]backend.RenewRequest, 1), out)
	for _, err := range []error{err, out[0].Err, s.Ping(t.Context())} {
		f := backend.FaultOf(err)
		check.ErrorIf(t, !errors.Is(err, backend.ErrSessionClosed) || f.MayHaveRun || f.Temporary, "%+v", f)
	}
}

func TestLazySharesOneAttemptAndTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		builds, discards := 0, 0
		gate := make(chan error)
		l := NewLazy(func() (int, error) {
			builds++
			return builds, <-gate
		}, func(int) { discards++ })
		results := make(chan error, 10)
		for range 10 {
			go func() {
				_, err := l.Get(context.Background())
				results <- err
			}()
		}
		synctest.Wait() // all of them wait
		gate <- errors.New("refused")
		for range 10 {
			err := <-results
			check.ErrorIf(t, err == nil || err.Error() != "refused", "%v", err)
		}
		go func() { gate <- nil }()
		c, err := l.Get(t.Context())
		check.ErrorIf(t, c != 2 || err != nil || !l.Built(), "%d %v", c, err)
		l.Close()
		l.Close()
		check.ErrorIf(t, discards != 1, "discarded %d times", discards)
	})
}

// One that had looked when there was no client yet, and came to ask for an attempt when it was
// over, built a second client: the first was never closed, and what build writes was
// written under those who read it.
func TestALazyClientIsBuiltOnce(t *testing.T) {
	const callers = 8
	for range 500 {
		var built atomic.Int32
		l := NewLazy(func() (int32, error) { return built.Add(1), nil }, func(int32) {})
		l.mu.Lock() // all look before any can ask
		var begun, over sync.WaitGroup
		for range callers {
			begun.Add(1)
			over.Go(func() {
				begun.Done()
				c, err := l.Get(t.Context())
				check.ErrorIf(t, c != 1 || err != nil, "got client %d, %v", c, err)
			})
		}
		begun.Wait()
		runtime.Gosched()
		l.mu.Unlock()
		over.Wait()
		n := built.Load()
		check.FatalIf(t, n != 1, "built %d times", n)
	}
}

// The scripts are sent again when they are needed: a master that cannot load them does not fail Ping.
func TestPingDoesNotNeedTheScripts(t *testing.T) {
	bubble(t, func(t *testing.T, a *fakeAdapter, s *session, _ *recorder) {
		answer := make(chan error)
		var loads atomic.Int64
		a.load = func() error { loads.Add(1); return <-answer }
		began := time.Now()
		check.NoError(t, s.Ping(t.Context()))
		check.NoError(t, s.Ping(t.Context()))
		check.Equal(t, "beside a master that hangs, two Pings took %v", time.Since(began), 2*loadingPatience)
		check.Equal(t, "they began to load %d times", loads.Load(), 1)
		answer <- io.EOF
		synctest.Wait()
		go func() { answer <- io.EOF }()
		check.NoError(t, s.Ping(t.Context()))
		go func() { answer <- serverError("NOPERM") }()
		check.ErrorIf(t, s.Ping(t.Context()) == nil, "no permission to load, and Ping says nothing")
		go func() { answer <- nil }()
		check.NoError(t, s.Ping(t.Context()))
		check.NoError(t, s.Ping(t.Context()))
		check.Equal(t, "loaded %d times", loads.Load(), 4)
	})
}
