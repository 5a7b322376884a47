package localqueue

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/clock"
)

// Each row is a story: words separated by spaces, carried out one after the other.
//
//	+a        ticket a joins            -a         ticket a leaves
//	notify    the lock may be free      ask=a      a is to ask now (ask= none), and asks
//	refused:N the store refused, ask again at N    recheck:N recheck at N
//	now:N     the time                  held free  the record is held here, or no more
//	woken=a   a was told (and is not any more)     quiet    no ticket was told
func TestWhichWaiterAsks(t *testing.T) {
	for what, story := range map[string]string{
		"the first asks at once":                           "+a ask=a ask=",
		"the second does not":                              "+a +b ask=a ask=",
		"it asks again when the lease is over":             "+a ask=a refused:100 now:99 ask= now:100 ask=a",
		"it asks again after an event":                     "+a ask=a refused:100 notify woken=a ask=a ask=",
		"an event while it asks is not lost":               "+a ask=a notify refused:100 ask=a",
		"the next asks when the first leaves":              "+a +b ask=a refused:100 notify woken=a -a woken=b ask=b",
		"the next knows what the first was told":           "+a +b ask=a refused:100 -a woken=b ask=",
		"no waiter asks while the record is held here":     "+a held ask= notify quiet ask=",
		"the first asks when the record is no longer held": "+a ask=a held notify free wake woken=a ask=a",
		"a new tenure settles what was told before":        "+a notify held free ask=",
		"a recheck": "+a ask=a refused:1000 recheck:50 now:50 ask=a ask=",
		"a recheck wakes a sleeper that sleeps longer":  "+a ask=a refused:1000 sleep recheck:50 woken=a",
		"a recheck does not wake one that looks before": "+a ask=a refused:40 sleep recheck:50 quiet",
		"the first of three leaves":                     "+a +b +c -a woken=b -b woken=c -c quiet",
		"one in the middle leaves":                      "+a +b +c -b quiet -a woken=c",
		"the last leaves":                               "+a +b -b quiet +c -a woken=c",
	} {
		t.Run(what, func(t *testing.T) { tell(t, story) })
	}
}

func tell(t *testing.T, story string) {
	q := New(false)
	tickets := make(map[string]*Ticket)
	now := int64(1)
	name := func(x *Ticket) string {
		for n, y := range tickets {
			if x == y {
				return n
			}
		}
		return ""
	}
	woken := func() (all string) {
		for n, x := range tickets {
			select {
			case <-x.ready:
				all += n
			default:
			}
		}
		return all
	}
	for _, word := range strings.Fields(story) {
		var at int64
		verb, arg, _ := strings.Cut(word, ":")
		_, _ = fmt.Sscan(arg, &at)
		switch {
		case word[0] == '+':
			x := new(Ticket)
			x.Ready()
			tickets[word[1:]] = x
			q.Join(x)
		case word[0] == '-':
			q.Leave(tickets[word[1:]])
		case strings.HasPrefix(word, "ask="):
			ask, _ := q.Next(now)
			if got := name(ask); got != word[4:] {
				t.Fatalf("%s: %q is to ask", word, got)
			}
			if ask != nil {
				q.Asks()
			}
			woken()
		case strings.HasPrefix(word, "woken="):
			if got := woken(); got != word[6:] {
				t.Fatalf("%s: %q was told", word, got)
			}
		case word == "quiet":
			if got := woken(); got != "" {
				t.Fatalf("%q was told", got)
			}
		case verb == "refused":
			q.Refused(at, at)
		case verb == "recheck":
			q.Recheck(at)
		case verb == "now":
			now = at
		case word == "sleep":
			_, wake := q.Next(now)
			q.Sleeps(q.First(), wake)
		default:
			map[string]func(){
				"notify": q.Notify, "wake": q.Wake,
				"held": func() { q.Hold(true) }, "free": func() { q.Hold(false) },
			}[word]()
		}
	}
}

func TestTheBudgetIsTheWaitersOfTheBeginning(t *testing.T) {
	for waiters, want := range map[int]int{0: 1, 1: 1, 5: 5, 32: 32, 1000: 32} {
		q := New(false)
		for range waiters {
			q.Join(new(Ticket))
		}
		var b Budget
		b.Refill(q, 7)
		got := 0
		for ; b.Left(7); got++ {
			b.Spend()
		}
		if got != want {
			t.Errorf("%d waiters: %d handoffs, want %d", waiters, got, want)
		}
		b.Refill(q, 7)
		if last := 7 + int64(250*time.Millisecond); !b.Left(last-1) || b.Left(last) {
			t.Error("the budget lasts for another time than 250 ms")
		}
		if b.Wanted(); !b.Left(7) {
			t.Error("a turn of its own is over since another waits")
		}
		b.Extra()
		if b.Wanted(); b.Left(7) {
			t.Error("a turn that went on since nothing else waited is not over though something does")
		}
		if b.Refill(q, 7); !b.Left(7) {
			t.Error("the next turn is over when it begins")
		}
	}
}

func TestAWaiterForFewerPermitsMayOvertake(t *testing.T) {
	q := New(false)
	var many, few, one Ticket
	many.Wants, few.Wants, one.Wants = 5, 3, 1
	q.Join(&many)
	q.Asks()
	if q.Taker(2) != nil {
		t.Error("the first does not overtake itself")
	}
	if q.Join(&few); q.Events() != 1 {
		t.Error("two permits are not enough for three")
	}
	if q.Join(&one); q.Events() != 2 {
		t.Error("the first is to ask for what may serve a waiter behind it")
	}
	if q.Taker(2) != &one || q.Taker(3) != &few || q.Taker(0) != nil {
		t.Error("the wrong waiter takes what is free")
	}
	if few.Serve(); q.Taker(3) != &one {
		t.Error("a served waiter is served again")
	}
}

func TestAWaiterForFewerPermitsThanWereAskedForAtTheLeastHasTheFirstAsk(t *testing.T) {
	q := New(false)
	var many, few, one Ticket
	many.Wants, few.Wants, one.Wants = 5, 3, 1
	q.Join(&many)
	if q.Least() != 5 {
		t.Error("the first wants five")
	}
	if q.Join(&few); q.Events() != 2 || q.Least() != 3 {
		t.Error("the store is to hear of the waiter for three")
	}
	if q.Join(&one); q.Events() != 3 || q.Least() != 1 {
		t.Error("the store is to hear of the waiter for one")
	}
	var other Ticket
	other.Wants = 2
	if q.Join(&other); q.Events() != 3 || q.Least() != 1 {
		t.Error("a waiter that wants more than the least is news")
	}
	if one.Serve(); q.Least() != 2 {
		t.Error("a waiter that was served wants something")
	}
}

func TestAWaiterOfAGreaterDepthGoesFirst(t *testing.T) {
	q := New(false)
	var outer, inner, second, innermost Ticket
	outer.Depth, inner.Depth, second.Depth, innermost.Depth = 1, 2, 1, 3
	q.Join(&outer)
	q.Asks()
	q.Refused(100, 100)
	if q.Join(&second); q.Events() != 1 {
		t.Error("a waiter of the same depth is news to the first")
	}
	if q.Join(&inner); q.Events() != 2 || q.First() != &outer {
		t.Error("the first is to ask, and to be overtaken after the answer")
	}
	q.Join(&innermost)
	for _, want := range []*Ticket{&innermost, &inner, &outer, &second} {
		q.Asks()
		q.Overtake()
		first := q.First()
		if asks, _ := q.Next(0); want == &innermost && asks != first {
			t.Error("a waiter that has overtaken is to ask")
		}
		if first != want {
			t.Fatalf("the first has depth %d, want %d", first.Depth, want.Depth)
		}
		q.Leave(first)
	}
}

func TestAllThatWaitedByThenAreServed(t *testing.T) {
	q := New(false)
	var a, b, c Ticket
	q.Join(&a)
	q.Join(&b)
	number := q.Joined()
	q.Join(&c)
	q.Serve(number)
	if !a.Served() || !b.Served() || c.Served() {
		t.Error("served: not those that came before the answer")
	}
}

func TestNothingWaitsInNoQueue(t *testing.T) {
	var q *Queue
	q.Notify()
	q.Wake()
	q.Hold(true)
	q.Serve(1)
	if q.First() != nil || q.Taker(1) != nil {
		t.Error("a waiter without a queue")
	}
	if left := New(false).Ends(0); left >= 0 {
		t.Errorf("the holder's lease ends in %v", left)
	}
	if _, at := New(false).Next(0); at != clock.Never {
		t.Error("an empty queue has a time to look")
	}
}
