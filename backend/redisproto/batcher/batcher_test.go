package batcher

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/internal/redistest/check"
)

// post is a server that answers each round trip when it is told to.
type post struct {
	mu    sync.Mutex
	trips []*trip
}

type trip struct {
	calls  []int
	answer chan struct{}
	ctx    context.Context
}

func (p *post) send(ctx context.Context, calls []int) {
	t := &trip{calls: slices.Clone(calls), answer: make(chan struct{}), ctx: ctx}
	p.mu.Lock()
	p.trips = append(p.trips, t)
	p.mu.Unlock()
	<-t.answer
}

// sent are the round trips so far.
func (p *post) sent() []*trip {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.trips)
}

func cancellable(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return ctx
}

func TestBatcherSendsTogetherWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p post
		o := New(p.send)
		ctx := cancellable(t)
		var done sync.WaitGroup
		do := func(call int) {
			done.Go(func() {
				left := o.Do(ctx, call)
				check.ErrorIf(t, left != nil, "call %d was left", call)
			})
			synctest.Wait()
		}
		for i := range 6 {
			do(i)
		}
		got := p.sent()
		check.FatalIf(t, len(got) != fewSenders, "%d round trips are on their way, want %d", len(got), fewSenders)
		close(got[0].answer)
		synctest.Wait()
		if got = p.sent(); len(got) != fewSenders+1 || len(got[fewSenders].calls) != 6-fewSenders {
			t.Fatalf("after one answer %d round trips were sent, the last with %v; want one more, with all that waited",
				len(got), got[len(got)-1].calls)
		}
		for _, x := range got[1:] {
			close(x.answer)
		}
		done.Wait()
		o.Close()
	})
}

// Near a server two round trips at a time take all that is there; far from it calls do not wait for
// each other's.
func TestBatcherSendsAsManyAsTheServerIsFar(t *testing.T) {
	for trip, want := range map[time.Duration]int{
		20 * time.Microsecond:  fewSenders,
		150 * time.Microsecond: fewSenders + 1,
		500 * time.Microsecond: fewSenders + 5,
		20 * time.Millisecond:  mostSenders,
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			under, most := 0, 0
			o := New(func(context.Context, []int) {
				mu.Lock()
				under++
				most = max(most, under)
				mu.Unlock()
				time.Sleep(trip)
				mu.Lock()
				under--
				mu.Unlock()
			})
			ctx := cancellable(t)
			for range 20 { // until it is known
				o.Do(ctx, 0)
			}
			most = 0
			var done sync.WaitGroup
			for i := range 50 {
				done.Go(func() {
					time.Sleep(time.Duration(i) * trip / 20)
					o.Do(ctx, i)
				})
			}
			done.Wait()
			if far := most - want; far < 0 || far > 0 && trip < stuckAfter {
				t.Errorf("%d round trips at once, of %v each; want %d", most, trip, want)
			}
			o.Close()
			synctest.Wait()
			check.ErrorIf(t, o.senders != 0, "%d senders are left", o.senders)
		})
	}
}

// Alone, and with a context that cannot end, no goroutine is started.
func TestBatcherLeadsInPlace(t *testing.T) {
	calls := 0
	o := New(func(ctx context.Context, c []string) { calls += len(c) })
	for range 3 {
		left := o.Do(context.Background(), "x")
		check.ErrorIf(t, left != nil, "a call that cannot be left was left")
	}
	check.ErrorIf(t, calls != 3 || o.senders != 0 || o.extra != 0,
		"%d calls, %d senders and %d more, want 3 calls in place", calls, o.senders, o.extra)
}

// Others do not wait for a caller that sends its own.
func TestBatcherIsNotHeldUpByALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p post
		o := New(p.send)
		var done sync.WaitGroup
		for i := range 4 {
			done.Go(func() { o.Do(context.Background(), i) })
			synctest.Wait()
		}
		for answered := 0; answered < len(p.sent()); answered++ {
			close(p.sent()[answered].answer)
			synctest.Wait()
		}
		done.Wait()
		o.Close()
	})
}

func TestBatcherGoesOnWithoutACallerThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p post
		o := New(p.send)
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		for i := range 2 { // a context that has ended is no reason not to send
			left := o.Do(ended, i)
			check.FatalIf(t, left == nil, "a call whose caller has gone was waited for")
			synctest.Wait()
			select {
			case <-left:
				t.Fatal("the reply is there before it was given")
			default:
			}
			close(p.sent()[i].answer)
			<-left
		}
		// What was left does not show in the next one's.
		done := make(chan struct{})
		go func() { defer close(done); o.Do(cancellable(t), 2) }()
		synctest.Wait()
		select {
		case <-done:
			t.Error("a call got the reply of one that was left")
		default:
		}
		close(p.sent()[2].answer)
		<-done
		o.Close()
	})
}

// A connection that is broken and does not show it holds up those whose calls it took, and
// nobody else.
func TestBatcherPassesWhatIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p post
		o := New(p.send)
		ctx := cancellable(t)
		const stuck = fewSenders + 3
		for i := range stuck { // each in a round trip of its own, none is answered
			go o.Do(ctx, i)
			synctest.Wait()
			time.Sleep(2 * stuckAfter)
			synctest.Wait()
		}
		got := len(p.sent())
		check.FatalIf(t, got != stuck, "%d round trips were begun, want %d", got, stuck)
		done := make(chan struct{})
		go func() { defer close(done); o.Do(ctx, 100) }()
		time.Sleep(2 * stuckAfter)
		synctest.Wait()
		all := p.sent()
		last := all[len(all)-1]
		check.FatalIf(t, len(all) != stuck+1 || last.calls[0] != 100, "%d round trips, want %d", len(all), stuck+1)
		close(all[stuck].answer)
		<-done
		for _, x := range all[:stuck] {
			close(x.answer)
		}
		synctest.Wait()
		o.mu.Lock()
		check.ErrorIf(t, o.extra != 0 || o.senders > fewSenders, "%d senders and %d more are left", o.senders, o.extra)
		o.mu.Unlock()
		o.Close()
	})
}

func TestBatcherClosesAndStillAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p post
		o := New(p.send)
		ctx := cancellable(t)
		done := make(chan struct{}, 2)
		for i := range 2 {
			go func() { o.Do(ctx, i); done <- struct{}{} }()
			synctest.Wait()
		}
		o.Close()
		for _, x := range p.sent() {
			check.ErrorIf(t, x.ctx.Err() == nil, "what is on its way is not told of Close")
			close(x.answer)
		}
		<-done
		<-done
		go func() { o.Do(ctx, 2); done <- struct{}{} }() // after Close: the client library refuses
		synctest.Wait()
		close(p.sent()[2].answer)
		<-done
		synctest.Wait() // and no goroutine is left, or synctest complains
	})
}

// Many callers that come and leave: every call is sent once, every reply goes to its caller.
func TestBatcherUnderLoad(t *testing.T) {
	var mu sync.Mutex
	sent := map[*int]int{}
	o := New(func(ctx context.Context, calls []*int) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range calls {
			sent[c]++
			*c = 1
		}
	})
	const callers, each = 16, 500
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				ctx, cancel := context.WithCancel(context.Background())
				if i%4 == 1 && j%3 == 0 {
					cancel()
				}
				if i%4 == 2 {
					ctx = context.Background()
				}
				call := new(int)
				if left := o.Do(ctx, call); left != nil {
					<-left
				}
				check.ErrorIf(t, *call != 1, "a reply was told before it was there")
				cancel()
			}
		})
	}
	wg.Wait()
	o.Close()
	check.ErrorIf(t, len(sent) != callers*each, "%d calls were sent, want %d", len(sent), callers*each)
	for _, n := range sent {
		check.FatalIf(t, n != 1, "a call was sent %d times", n)
	}
}

// No call is lost, sent twice, or left behind by parking, shares and changing most.
func TestBatcherIsAtRestAfterAll(t *testing.T) {
	for round := range 8 {
		var mu sync.Mutex
		sent := map[*int]int{}
		var slow atomic.Int64
		o := New(func(ctx context.Context, calls []*int) {
			if d := slow.Load(); d > 0 {
				time.Sleep(time.Duration(rand.Int64N(d)))
			}
			if rand.IntN(300) == 0 {
				time.Sleep(12 * time.Millisecond)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, c := range calls {
				sent[c]++
				*c = 1
			}
		})
		o.share = 1 + rand.IntN(5)
		var wg sync.WaitGroup
		const callers, each = 24, 120
		for i := range callers {
			wg.Go(func() {
				for j := range each {
					if j%20 == 0 {
						slow.Store([]int64{0, 1000, int64(300 * time.Microsecond),
							int64(2 * time.Millisecond)}[rand.IntN(4)])
					}
					if rand.IntN(8) == 0 {
						time.Sleep(time.Duration(rand.IntN(400)) * time.Microsecond)
					}
					ctx := context.Background()
					if i%2 == 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithCancel(ctx)
						defer cancel()
						if j%5 == 0 {
							cancel()
						}
					}
					call := new(int)
					if left := o.Do(ctx, call); left != nil {
						select {
						case <-left:
						case <-time.After(10 * time.Second):
							t.Error("a call has no reply")
							return
						}
					}
					check.ErrorIf(t, *call != 1, "a reply came before its call was sent")
				}
			})
		}
		if round%3 == 0 {
			wg.Go(func() { time.Sleep(5 * time.Millisecond); o.Close() })
		}
		wg.Wait()
		rest := func() bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			return o.extra == 0 && o.senders == o.parked
		}
		for end := time.Now().Add(10 * time.Second); !rest() && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		o.mu.Lock()
		check.ErrorIf(t, o.parked > 1 || o.parked < 0 || o.extra != 0 || o.leading != 0 || o.senders != o.parked ||
			len(o.wake) != 0 || len(o.pending) != 0,
			"round %d: of %d senders %d are parked; %d more, %d lead, %d are woken, %d calls pending", round, o.senders,
			o.parked, o.extra, o.leading, len(o.wake), len(o.pending))
		o.mu.Unlock()
		mu.Lock()
		for _, n := range sent {
			check.FatalIf(t, n != 1, "sent %d times", n)
		}
		check.ErrorIf(t, len(sent) != callers*each, "%d calls were sent, want %d", len(sent), callers*each)
		mu.Unlock()
		o.Close()
	}
}
