package backendtest

import (
	"fmt"
	"sync"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/once"
)

// tickTests are about schedules.
var tickTests = where(func(e *env) bool { return e.bare().Capabilities().Ticks != nil }, "schedules", []test{
	{"Port_Tick_ANewNameBeginsWithTheNextTick", func(e *env) {
		s := scheduleOf(e, "n", 300*time.Millisecond)
		r := s.claim("1")
		e.errorIf(r.Granted || r.Next <= 0 || r.Next > s.Interval, "the first claim is answered %+v", r)
		s.granted("2")
	}},
	{"Port_Tick_TicksAreMultiplesOfTheIntervalPlusTheOffset", func(e *env) {
		for _, offset := range []time.Duration{0, time.Millisecond, 199 * time.Millisecond} {
			s := scheduleOf(e, fmt.Sprint("n", offset), 200*time.Millisecond)
			s.Offset = offset
			at := s.granted("1").Tick
			equal(e, "the tick is %v ms behind a multiple", at.UnixMilli()%200, offset.Milliseconds())
			next := s.granted("2").Tick
			e.errorIf(!next.After(at), "the tick after %v is %v", at, next)
			equal(e, "the next tick is %v ms behind a multiple", next.UnixMilli()%200, offset.Milliseconds())
		}
	}},
	{"Port_Tick_EachTickIsGrantedOnceAmongManySessions", func(e *env) {
		const ticks = 20
		var mu sync.Mutex
		granted := make(map[int64]int)
		e.turns(8, 1, func(g, _ int) error {
			s := scheduleOf(e, "n", 50*time.Millisecond)
			for n := 0; ; n++ {
				r, err := s.Capabilities().Ticks.ClaimTick(background, s.with(fmt.Sprint(g, ".", n)))
				if err != nil {
					return err
				}
				mu.Lock()
				if r.Granted {
					granted[r.Tick.UnixMilli()]++
				}
				over := len(granted) >= ticks
				mu.Unlock()
				if over {
					return nil
				}
				time.Sleep(r.Next) // that time is the subject
			}
		})
		for at, n := range granted {
			e.errorIf(n != 1 || at%50 != 0, "the tick at %d was granted %d times", at, n)
		}
	}},
	{"Port_Tick_TheSameClaimAgainIsGrantedTheSameTick", func(e *env) {
		s := scheduleOf(e, "n", time.Second)
		s.Missed = 100 // a slow machine does not make the tick too old
		first := s.granted("1")
		again, other := s.claim("1"), scheduleOf(e, "n", time.Second).claim("2")
		e.errorIf(!again.Granted || !again.Tick.Equal(first.Tick), "granted %+v, the same claim again %+v", first, again)
		e.errorIf(other.Granted && !other.Tick.After(first.Tick), "granted %+v, another claim %+v", first, other)
	}},
	{"Port_Tick_TheSameClaimIsGrantedNoTickThatIsTooOld", func(e *env) {
		s := scheduleOf(e, "n", 200*time.Millisecond)
		first := s.granted("1")
		time.Sleep(2 * s.Interval) // that time is the subject
		again := s.claim("1")
		e.errorIf(!again.Granted || !again.Tick.After(first.Tick), "granted %+v, and two intervals later %+v", first, again)
	}},
	{"Port_Tick_OnlyTheNewestIsGrantedUnlessMissedOnesMayBe", func(e *env) {
		s := scheduleOf(e, "n", 200*time.Millisecond)
		first := s.granted("1")
		time.Sleep(7 * s.Interval) // that time is the subject
		newest := s.granted("2")
		atLeast(e, "after a gap of seven intervals, the tick %v after the last was granted", newest.Tick.Sub(first.Tick),
			6*s.Interval)
		time.Sleep(7 * s.Interval)
		s.Missed = 3
		gap := s.claim("3")
		e.errorIf(!gap.Granted || gap.Next != 0, "with three that may be made up: %+v, want one, and more at once", gap)
		atLeast(e, "of a gap of seven intervals, the tick %v after the last was granted", gap.Tick.Sub(newest.Tick),
			3*s.Interval)
		s.Missed = 100
		for last, i := gap.Tick, 0; i < 3; i++ { // the oldest first
			r := s.claim(fmt.Sprint("more", i))
			e.errorIf(!r.Granted || r.Tick.Sub(last) != s.Interval, "%v after the last, %+v", r.Tick.Sub(last), r)
			last = r.Tick
		}
	}},
	{"Port_Tick_ALateTickIsRefused", func(e *env) {
		s := scheduleOf(e, "n", time.Second)
		claim := func(id string, late time.Duration) backend.TickReply {
			s.Late = late
			r := s.claim(id)
			e.errorIf(r.Granted && s.Interval-r.Next > late, "%v late, of %v that is allowed: %+v", s.Interval-r.Next, late, r)
			return r
		}
		time.Sleep(claim("1", 0).Next + s.Interval/2) // that time is the subject
		late := claim("2", s.Interval/10)
		e.errorIf(late.Next <= 0 || late.Next > s.Interval, "half a second late: %+v", late)
		e.errorIf(!claim("3", s.Interval).Granted, "half a second late, of one that is allowed: refused")
		time.Sleep(2 * s.Interval)
		s.Missed = 10
		claim("4", s.Interval*9/10) // not the tick that was missed one and a half seconds ago
	}},
	{"Port_Tick_AnotherIntervalIsGrantedLaterTicksOnly", func(e *env) {
		s := scheduleOf(e, "n", 100*time.Millisecond)
		s.granted("1")
		hourly, day := scheduleOf(e, "n", time.Hour), 24*time.Hour
		r := hourly.claim("2")
		e.errorIf(r.Granted || r.Next <= 0 || r.Next > time.Hour, "by the hour: %+v", r)
		hourly.Interval, hourly.Missed = day, 5
		r = hourly.claim("3")
		e.errorIf(r.Granted || r.Next <= 0 || r.Next > day, "by the day, those that were missed included: %+v", r)
		s.granted("4")
	}},
	{"Port_Tick_AStoreThatWasEmptiedDoesNotGrantTheNewestTick", func(e *env) {
		s := scheduleOf(e, "n", 2*time.Second)
		s.granted("1")
		e.store.Flush()
		s.Missed = 100
		r := s.claim("2")
		e.errorIf(r.Granted, "after it was emptied: %+v", r)
		s.granted("3")
	}},
	{"Port_Tick_AStoreThatWasEmptiedDoesNotGrantTheNewestTickOfAnotherInterval", func(e *env) {
		s, hourly := scheduleOf(e, "n", 2*time.Second), scheduleOf(e, "n", time.Hour)
		last := s.granted("1").Tick
		e.store.Flush()
		hourly.claim("2")
		r := s.claim("3")
		e.errorIf(r.Granted && !r.Tick.After(last), "the tick at %v was granted before it was emptied, and then %+v", last, r)
		s.granted("4")
	}},
	{"Port_Tick_SchedulesAndLocksOfOneNameShareNothing", func(e *env) {
		s := scheduleOf(e, "n", 100*time.Millisecond)
		s.take("n", "a:1", long)
		s.granted("1")
		s.heldBy("n", "a:1", 1)
		for _, name := range []string{"n{x}", "{n}"} {
			other := scheduleOf(e, name, time.Hour)
			other.claim("2")
			equal(e, "the lock of "+name+" is %+v", s.record(name), (backend.Record{}))
		}
	}},
	{"Port_Tick_DataOfAnotherKindIsNamedAndLeftAlone", func(e *env) {
		s := scheduleOf(e, "n", time.Second)
		e.store.Occupy("mortise:1:tick:{n}")
		for range 2 {
			_, err := s.Capabilities().Ticks.ClaimTick(background, s.with("1"))
			e.is("ClaimTick", err, backend.ErrWrongKind)
		}
	}},
	{"Rule11_AClaimWhoseReplyIsLostIsGrantedItsTick", func(e *env) {
		c, f := e.tapped()
		r := once.TickRequest{ID: "1", Interval: 2 * time.Second}
		tick := value(once.TryTick(background, c, "n", r)).in(e)
		time.Sleep(tick.Next) // that time is the subject
		lose(f, OpClaimTick, 1)
		tick = value(once.TryTick(background, c, "n", r)).in(e)
		e.errorIf(!tick.Claimed, "the claim is answered %+v", tick)
		r.ID = "2"
		tick = value(once.TryTick(background, c, "n", r)).in(e)
		e.errorIf(tick.Claimed, "another claim is answered %+v", tick)
	}},
	{"Rule13_ASchedulesNonsenseIsRefusedWithoutACommand", func(e *env) {
		c, f := e.tapped()
		good := once.TickRequest{ID: "1", Interval: time.Second}
		for what, change := range map[string]func(*once.TickRequest){
			"no ID":                    func(r *once.TickRequest) { r.ID = "" },
			"no interval":              func(r *once.TickRequest) { r.Interval = 0 },
			"a negative interval":      func(r *once.TickRequest) { r.Interval = -time.Second },
			"a short interval":         func(r *once.TickRequest) { r.Interval = time.Millisecond },
			"a long interval":          func(r *once.TickRequest) { r.Interval = 367 * 24 * time.Hour },
			"a fraction of a ms":       func(r *once.TickRequest) { r.Interval += time.Microsecond },
			"a negative offset":        func(r *once.TickRequest) { r.Offset = -time.Millisecond },
			"an offset of an interval": func(r *once.TickRequest) { r.Offset = r.Interval },
			"too much to catch up on":  func(r *once.TickRequest) { r.CatchUp = 1001 },
			"too long to catch up on":  func(r *once.TickRequest) { r.Interval, r.CatchUp = 200*24*time.Hour, 2 },
			"less than nothing":        func(r *once.TickRequest) { r.CatchUp = -1 },
			"negative lateness":        func(r *once.TickRequest) { r.MaxLate = -time.Second },
		} {
			r := good
			change(&r)
			_, err := once.TryTick(background, c, "n", r)
			e.is(what, err, mortise.ErrInvalid)
		}
		_, err := once.TryTick(background, c, "}", good)
		e.is("a name", err, mortise.ErrInvalidName)
		equal(e, "%d commands were sent", f.Count(), 0)
	}},
})

// schedule is a session with a claim to repeat.
type schedule struct {
	*raw
	backend.TickRequest
}

func scheduleOf(e *env, name string, interval time.Duration) *schedule {
	e.Helper()
	return &schedule{e.bare(), backend.TickRequest{Name: name, Interval: interval}}
}

func (s *schedule) with(id string) backend.TickRequest {
	r := s.TickRequest
	r.ID = id
	return r
}

func (s *schedule) claim(id string) backend.TickReply {
	s.e.Helper()
	return call(s.e, s.Capabilities().Ticks.ClaimTick, s.with(id))
}

// granted claims until a tick is granted.
func (s *schedule) granted(id string) (r backend.TickReply) {
	s.e.Helper()
	s.e.until("a tick is granted", func() bool {
		if r = s.claim(id); !r.Granted {
			time.Sleep(r.Next) // that time is the subject
		}
		return r.Granted
	})
	return r
}
