package heldcache

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/internal/redistest/check"
)

func (c *Cache) believes(name string, now time.Time) bool {
	a := c.Held(name, now)
	if a.Tick {
		c.Tick(now, false)
	}
	return a.Held
}

func TestARefusalAfterAnInvalidationCounts(t *testing.T) {
	p := New(10)
	now := time.Now()
	old := p.Begin("n")
	p.Forget("n")
	fresh := p.Begin("n")
	p.Refused(fresh, now, time.Minute)
	check.ErrorIf(t, !p.believes("n", now), "forgot what was asked after the invalidation")
	p.Forget("n")
	p.Refused(old, now, time.Minute)
	check.ErrorIf(t, p.believes("n", now), "believes what was asked before the invalidation")
	check.ErrorIf(t, len(p.queries) != 0, "queries are left behind")
}

func TestAnExcludedNameStaysOutForAWhile(t *testing.T) {
	p := New(10)
	now := time.Now()
	p.Exclude("n", now)
	p.Forget("n")
	p.Refused(p.Begin("n"), now, time.Hour)
	check.ErrorIf(t, p.believes("n", now), "believed although excluded")
	check.ErrorIf(t, p.RefusedElsewhere("n", now) || p.RefusedElsewhere("n", now), "learns although excluded")
	now = now.Add(excludedFor)
	p.Refused(p.Begin("n"), now, time.Hour)
	check.ErrorIf(t, !p.believes("n", now), "the exclusion does not end")
}

// An answer counts for goodFor after its request, and with ticks for goodFor after the last tick that was answered.
func TestAnAnswerCountsForAShortTimeAfterTheConnectionWasHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(10)
		start := time.Now()
		after := func(d time.Duration) bool {
			time.Sleep(time.Until(start.Add(d)))
			return p.believes("n", time.Now())
		}
		learn := func() {
			start = time.Now()
			p.Refused(p.Begin("n"), start, time.Hour)
		}
		learn()
		check.ErrorIf(t, !after(goodFor) || after(goodFor+1), "without ticks it does not count for %v", goodFor)

		learn()
		for i := range time.Duration(10) {
			check.ErrorIf(t, !after(i*goodFor), "forgotten after %d ticks", i)
			p.Tick(time.Now(), true)
		}
		check.ErrorIf(t, after(11*goodFor), "believed %v after the last tick", 2*goodFor)

		learn()
		time.Sleep(2 * goodFor)
		p.Tick(time.Now(), true) // perhaps over another connection
		check.ErrorIf(t, p.believes("n", time.Now()), "a tick revives an answer that counted no more")
	})
}

func TestTheCacheAsksForATickWhileItAnswersAndForOneAtATime(t *testing.T) {
	p := New(10)
	now := time.Now()
	p.Refused(p.Begin("n"), now, time.Hour)
	asks := func(d time.Duration) bool {
		now = now.Add(d)
		a := p.Held("n", now)
		check.ErrorIf(t, !a.Held, "not believed")
		return a.Tick
	}
	check.ErrorIf(t, asks(tickAfter), "a tick at once")
	check.ErrorIf(t, !asks(1), "no tick after %v", tickAfter)
	check.ErrorIf(t, asks(tickAfter), "two ticks at a time")
	p.Tick(now, true)
	check.ErrorIf(t, asks(tickAfter), "a tick at once after a tick")
	check.ErrorIf(t, !asks(1), "no tick %v after a tick", tickAfter)
	p.Tick(now, false)
	check.ErrorIf(t, asks(tickAfter-1), "a tick at once after one that failed")
	check.ErrorIf(t, !asks(2), "no tick after one that failed")
}

func TestAReleaseIsKnownToAllCachesOfTheProcess(t *testing.T) {
	releasing, asking := New(10), New(10)
	now := time.Now()
	for what, free := range map[string]func(){
		"released": func() { releasing.Freed("n") },
		"perhaps":  func() { releasing.Exclude("n", now) },
	} {
		before := asking.Begin("n")
		asking.Refused(asking.Begin("n"), now, time.Hour)
		check.ErrorIf(t, !asking.believes("n", now), "%s: not believed", what)
		free()
		check.ErrorIf(t, asking.believes("n", now), "%s: believed after the release", what)
		asking.Refused(before, now, time.Hour)
		check.ErrorIf(t, asking.believes("n", now), "%s: believes what was asked before the release", what)
		asking.Refused(asking.Begin("n"), now, time.Hour)
		check.ErrorIf(t, !asking.believes("n", now), "%s: does not believe what was asked after the release", what)
	}
}

// The first refusal elsewhere is noted, further ones shortly after are to be learned from, by one query at a time.
func TestTheCacheLearnsOfANameThatIsRefusedTwiceInAShortTime(t *testing.T) {
	p := New(10)
	now := time.Now()
	check.ErrorIf(t, p.RefusedElsewhere("n", now), "learns at the first")
	check.ErrorIf(t, !p.RefusedElsewhere("n", now), "does not learn at the second")
	query := p.Begin("n")
	check.ErrorIf(t, p.RefusedElsewhere("n", now), "two queries at a time")
	p.Refused(query, now, time.Hour)
	check.ErrorIf(t, !p.believes("n", now) || p.RefusedElsewhere("n", now), "did not learn")
	now = now.Add(goodFor + 1)
	check.ErrorIf(t, p.believes("n", now) || p.RefusedElsewhere("n", now), "learns after a long time")
}

// Callers that spin leave the processors to the goroutine that reads invalidations, all of them at the same time.
func TestCallersThatSpinRestForAMoment(t *testing.T) {
	for what, c := range map[string]struct {
		pause time.Duration
		rests bool
	}{"spinning": {spinFor / spinning / 2, true}, "busy": {2 * spinFor / spinning, false}} {
		p := New(10)
		start := time.Now()
		p.Refused(p.Begin("n"), start, time.Hour)
		rests := 0
		for now := start; now.Before(start.Add(10 * spinFor)); now = now.Add(c.pause) {
			a := p.Held("n", now)
			if !a.Rest {
				continue
			}
			rests++
			half := now.Add(restFor / 2)
			check.ErrorIf(t, !p.Held("n", half).Rest, "%s: another caller does not rest", what)
			now = now.Add(restFor)
			check.ErrorIf(t, p.Held("n", now).Rest, "%s: the rest does not end", what)
		}
		check.ErrorIf(t, c.rests != (rests > 5) || rests > 10, "%s: %d rests", what, rests)
	}
}

func TestManyNamesLeaveNothingBehind(t *testing.T) {
	p := New(1000)
	now := time.Now()
	for i := range 300_000 {
		name := fmt.Sprint(i)
		p.Refused(p.Begin(name), now, time.Minute)
		check.FatalIf(t, len(p.entries) > 1000, "%d entries", len(p.entries))
		if i%2 == 0 {
			p.Forget(name)
		}
	}
	now = now.Add(time.Minute)
	for i := range 4000 {
		name := fmt.Sprint(i)
		p.Refused(p.Begin(name), now, time.Minute)
	}
	over := 0
	for _, e := range p.entries {
		if e.over(p.at(now)) {
			over++
		}
	}
	check.ErrorIf(t, over > 100 || len(p.queries) != 0, "%d entries are over, %d queries", over, len(p.queries))
	p.ForgetAll()
	check.ErrorIf(t, len(p.entries) != 0, "%d entries", len(p.entries))
}
