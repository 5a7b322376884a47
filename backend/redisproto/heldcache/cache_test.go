package heldcache

import (
	"fmt"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest/check"
)

func TestARefusalAfterAnInvalidationCounts(t *testing.T) {
	p := New(10)
	now := time.Now()
	old := p.Begin("n")
	p.Forget("n")
	fresh := p.Begin("n")
	p.Refused(fresh, now, time.Minute)
	if _, held := p.Held("n", now); !held {
		t.Error("forgot what was asked after the invalidation")
	}
	p.Forget("n")
	p.Refused(old, now, time.Minute)
	if _, held := p.Held("n", now); held {
		t.Error("believes what was asked before the invalidation")
	}
	check.ErrorIf(t, len(p.queries) != 0, "queries are left behind")
}

func TestAnExcludedNameStaysOutForAWhile(t *testing.T) {
	p := New(10)
	now := time.Now()
	p.Exclude("n", now)
	p.Forget("n")
	p.Refused(p.Begin("n"), now, time.Hour)
	if _, held := p.Held("n", now); held {
		t.Error("believed although excluded")
	}
	now = now.Add(excludedFor)
	p.Refused(p.Begin("n"), now, time.Hour)
	if _, held := p.Held("n", now); !held {
		t.Error("the exclusion does not end")
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
		if !now.Before(e.until) {
			over++
		}
	}
	check.ErrorIf(t, over > 100 || len(p.queries) != 0, "%d entries are over, %d queries", over, len(p.queries))
	p.ForgetAll()
	check.ErrorIf(t, len(p.entries) != 0, "%d entries", len(p.entries))
}
