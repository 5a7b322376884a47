package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
)

// keeper guards tenures, and ends no hold by itself.
type keeper struct{ sync.Mutex }

func (*keeper) Now() clock.Instant { return clock.Instant{} }
func (*keeper) Err(h *Hold) error  { return h.Cause }
func (*keeper) Release(_ context.Context, h *Hold) error {
	h.Tenure.Detach(h, fail.Released)
	return nil
}

const watchdog = 30 * time.Second

func newTenure(mode Mode, outer *Tenure) *Tenure {
	t := &Tenure{Keeper: new(keeper), Mode: mode, Key: Key{Name: "n"}, TTL: watchdog, Plan: NewPlan(watchdog)}
	t.Under(outer)
	return t
}

func at(d time.Duration) clock.Instant { return clock.Instant{Mono: int64(d), Wall: int64(d)} }

// Each row is a story about one order, in words: "w" and "r" are holds of a writer and of readers under it, "w2"
// and so on. "w(r)" attaches w as entered under r; "-w" ends it; "enter:w" begins a re-entry from w, "read:w"
// one to read, "release" a release; "=" after a word says that it had to wait; "leave" ends the operation;
// "granted:w" and "sent:w" say what became of the turn that waited last from w.
func TestOperationsOfAnOrder(t *testing.T) {
	for what, story := range map[string]string{
		"a re-entry comes from the innermost hold":                   "w w2(w) enter:w= -w2 granted:w",
		"one operation at a time":                                    "w enter:w enter:w= leave granted:w",
		"a release goes at once where nothing is on its way":         "w w2(w) release",
		"a release waits for a re-entry":                             "w enter:w release= leave granted:",
		"a release overtakes a re-entry that cannot be":              "w w2(w) enter:w= release leave -w2 granted:w",
		"a re-entry from a hold that has ended is sent away":         "w w2(w) enter:w= -w sent:w",
		"a reader enters under a writer":                             "w read:w",
		"readers do not mind each other":                             "w r(w) read:w",
		"a writer waits for the reader under it":                     "w r(w) enter:w= -r granted:w",
		"a reader waits for a writer of another context":             "w w2(w) read:w= -w2 granted:w",
		"a call from the innermost hold of several levels may enter": "w w2(w) w3(w2) enter:w3",
	} {
		t.Run(what, func(t *testing.T) { tell(t, story) })
	}
}

func tell(t *testing.T, story string) {
	w := newTenure(Admitting, nil)
	holds := make(map[string]*Hold)
	turns := make(map[string]*Turn)
	for _, word := range strings.Fields(story) {
		waits := strings.HasSuffix(word, "=")
		verb, from, _ := strings.Cut(strings.TrimSuffix(word, "="), ":")
		switch verb {
		case "enter", "read", "release":
			x := &Turn{Hold: holds[from], Shared: verb == "read"}
			turns[from] = x
			if entered := w.Enter(x); entered == waits {
				t.Fatalf("%s: it entered: %v", word, entered)
			}
		case "leave":
			w.Leave()
		case "granted", "sent":
			x := turns[from]
			select {
			case <-x.Ready:
			default:
				t.Fatalf("%s: it still waits", word)
			}
			if x.Granted() != (verb == "granted") {
				t.Fatalf("%s: granted is %v", word, x.Granted())
			}
		default:
			if name, ends := strings.CutPrefix(verb, "-"); ends {
				holds[name].Tenure.Detach(holds[name], fail.Released)
				continue
			}
			name, outer, _ := strings.Cut(strings.TrimSuffix(verb, ")"), "(")
			h := &Hold{Outer: holds[outer]}
			tenure := w
			if name[0] == 'r' {
				tenure = newTenure(Shared, w)
			}
			tenure.Attach(h)
			holds[name] = h
		}
	}
}

func TestATurnThatIsGivenUpIsTheNextOnes(t *testing.T) {
	w := newTenure(Exclusive, nil)
	h := new(Hold)
	w.Attach(h)
	first, second, third := &Turn{Hold: h}, &Turn{Hold: h}, &Turn{Hold: h}
	w.Enter(first)
	w.Enter(second)
	w.Enter(third)
	if !w.Taken(&Turn{Hold: h}) {
		t.Error("a re-entry would not have to wait")
	}
	w.Quit(second)
	w.Leave()
	if !third.Granted() {
		t.Error("the turn was lost")
	}
	w.Quit(third)
	if !w.Idle() || !w.Entered() || w.Waited() {
		t.Error("the order is not idle, or knows of no re-entry")
	}
	if !w.TryBegin() || w.TryBegin() {
		t.Error("two releases at once")
	}
}

func TestTheHoldCount(t *testing.T) {
	w := newTenure(Exclusive, nil)
	a, b, c := new(Hold), new(Hold), new(Hold)
	for _, h := range []*Hold{a, b, c} {
		w.Attach(h)
	}
	w.Detach(b, fail.Released)
	if w.Count() != 2 || w.Live != 2 {
		t.Errorf("the count is %d of %d", w.Count(), w.Live)
	}
	w.Delegate() // levels stay from now on
	w.Detach(a, fail.Released)
	if w.Count() != 2 || c.Level != 2 {
		t.Errorf("the count of a lent tenure is %d, the level of its innermost hold", w.Count())
	}
	w.Detach(c, fail.Released)
	if w.Count() != 0 {
		t.Errorf("%d holds are left", w.Count())
	}
}

func TestForHowLongALeaseIsRenewed(t *testing.T) {
	now := at(time.Minute)
	for what, row := range map[string]struct {
		mode  Mode
		holds []Hold
		left  time.Duration // of the lease
		want  time.Duration
	}{
		"watchdog":                         {holds: []Hold{{Marks: Marks{Watchdog: true}}}, want: watchdog},
		"WithLease":                        {holds: []Hold{{}}},
		"WithLease, entered by a watchdog": {holds: []Hold{{}, {Marks: Marks{Watchdog: true}}}, want: watchdog},
		"WithMaxHold, far away": {
			holds: []Hold{{MaxHold: time.Hour, Since: now, Marks: Marks{Watchdog: true}}},
			want:  watchdog,
		},
		"WithMaxHold, near": {
			holds: []Hold{{MaxHold: 5 * time.Second, Since: now, Marks: Marks{Watchdog: true}}},
			want:  clock.Outlasting(5 * time.Second),
		},
		"a reader's long lease is asserted": {
			mode: Shared, holds: []Hold{{}},
			left: time.Hour, want: clock.Outlasting(time.Hour),
		},
		"a reader's short lease is not": {mode: Shared, holds: []Hold{{}}, left: 10 * time.Second},
	} {
		w := newTenure(row.mode, nil)
		for i := range row.holds {
			h := &row.holds[i]
			if i == 0 {
				w.First.MaxHold, w.First.Since, w.First.Marks = h.MaxHold, h.Since, h.Marks
				h = &w.First
			}
			w.Attach(h)
		}
		w.Deadline = now.Add(row.left)
		if got := w.Wants(now); got != row.want {
			t.Errorf("%s: renewed for %v, want %v", what, got, row.want)
		}
	}
}

func TestARenewalCountsFromBeforeItWasSent(t *testing.T) {
	w := newTenure(Exclusive, nil)
	w.First.Marks.Watchdog = true
	w.Attach(&w.First)
	sent := at(time.Second)
	w.Deadline = clock.Deadline(at(0), watchdog)
	w.Start(at(0), at(0), &w.First)
	if got := time.Duration(w.Plan.Next()); got != watchdog/3 {
		t.Errorf("the first renewal is at %v", got)
	}
	if got := w.Question(at(watchdog / 3)); got != watchdog {
		t.Errorf("it asks for %v", got)
	}
	if !w.Renewed(sent, at(5*time.Second), watchdog) || w.Deadline != clock.Deadline(sent, watchdog) {
		t.Errorf("the lease ends at %v", w.Deadline)
	}
	if got := time.Duration(w.Plan.Next()); got != time.Second+watchdog/3 {
		t.Errorf("the next renewal is at %v", got)
	}
	w.Plan.VerifyAt = int64(2 * time.Second)
	if got := w.Question(at(2 * time.Second)); got != 0 || w.Plan.VerifyAt != clock.Never {
		t.Errorf("a question asks for %v", got)
	}
	if w.Renewed(at(2*time.Second), at(3*time.Second), 0) {
		t.Error("a question made the lease longer")
	}
	w.Plan.Slept(5 * time.Second)
	if got := time.Duration(w.Plan.Next()); got != watchdog/3-4*time.Second {
		t.Errorf("after a sleep of 5 s the next renewal is at %v", got)
	}
	if w.Plan.Renewing = true; w.Plan.Next() != clock.Never {
		t.Error("it is renewed twice at once")
	}
}

func TestWhatAGrantShowsToBeLost(t *testing.T) {
	var r Record
	now := at(0)
	writer := newTenure(Admitting, nil)
	writer.Deadline = now.Add(time.Minute)
	admit := func(x *Tenure, want ...*Tenure) {
		t.Helper()
		lost, why := r.Admit(x)
		if fmt.Sprint(lost) != fmt.Sprint(want) || (why == "") != (len(want) == 0) {
			t.Errorf("lost: %d tenures, %q, want %d", len(lost), why, len(want))
		}
	}
	admit(writer)
	inner := newTenure(Shared, writer) // entered under it
	admit(inner)
	if left := r.Blocks(true, now); left != time.Minute {
		t.Errorf("a writer blocks for %v", left)
	}
	if !r.Dismiss(writer) || r.Blocks(true, now) != 0 {
		t.Error("a reader blocks a reader")
	}
	inner.Deadline = now.Add(time.Second)
	if left := r.Blocks(false, now); left != time.Second {
		t.Errorf("a reader blocks a writer for %v", left)
	}
	other := newTenure(Admitting, nil)
	admit(other, inner)
	stranger := newTenure(Shared, nil)
	admit(stranger, other)
	if r.Dismiss(inner) || r.Dismiss(newTenure(Shared, nil)) {
		t.Error("the lock is free though readers are left")
	}
	n := 0
	for range r.Tenures() {
		n++
	}
	if n != 2 || !r.InUse() {
		t.Errorf("%d tenures", n)
	}
}

func TestALeasesContextEndsWithItsHold(t *testing.T) {
	w := newTenure(Exclusive, nil)
	parent, cancel := context.WithCancel(t.Context())
	defer cancel()
	h := &w.First
	h.Under = parent
	w.Attach(h)
	ctx := h.Context()
	key := w.Key
	if ctx.Value(&key) != any(h) || h.Context() != ctx {
		t.Error("the context does not carry the hold")
	}
	w.Detach(h, fail.Lost)
	h.End(fail.Lost)
	if !errors.Is(context.Cause(ctx), fail.Lost) {
		t.Errorf("it ended with %v", context.Cause(ctx))
	}
	late := &Hold{Under: parent}
	w.Attach(late)
	w.Detach(late, fail.Released)
	cancel()
	if err := context.Cause(late.Context()); !errors.Is(err, fail.Released) {
		t.Errorf("a context made after the end says %v", err)
	}
}

// A reader goes on with the context that the writer's Lock was given, when the writer that it entered under unlocks.
func TestAReadersContextOutlivesTheUnlockOfItsWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancel(t.Context())
		w := newTenure(Admitting, nil)
		w.First.Under = parent
		w.Attach(&w.First)
		r := newTenure(Shared, w)
		r.First.Under, r.First.Outer = w.First.Context(), &w.First
		r.Attach(&r.First)
		ctx := r.First.Context()
		w.Detach(&w.First, fail.Released)
		w.First.End(fail.Released)
		if synctest.Wait(); ctx.Err() != nil {
			t.Fatal("it ended with the writer's Unlock")
		}
		cancel()
		<-ctx.Done()
	})
}

func TestAStandIn(t *testing.T) {
	released := 0
	s := NewStandIn(t.Context(), "n", func(context.Context) error { released++; return nil })
	if s.Err() != nil || s.Name() != "n" {
		t.Error("it is not held")
	}
	if err := s.Unlock(t.Context()); err != nil || released != 1 || !errors.Is(context.Cause(s.Context()), fail.Released) {
		t.Errorf("Unlock: %v", err)
	}
	if err := s.Unlock(t.Context()); !errors.Is(err, fail.Released) || released != 1 {
		t.Errorf("a second Unlock: %v", err)
	}
	ctx, lose := context.WithCancelCause(t.Context())
	s = NewStandIn(ctx, "n", nil)
	lose(fail.Lost)
	if err := s.Err(); !errors.Is(err, fail.Lost) {
		t.Errorf("a lost one says %v", err)
	}
	if err := s.Unlock(t.Context()); !errors.Is(err, fail.Lost) {
		t.Errorf("Unlock of a lost one: %v", err)
	}
}
