package backendtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// stack is what a lock of several owners is, as long as no lease ends: the owners in the order in which they
// came, each with its holds.
type stack []struct {
	owner string
	holds int
}

func (k stack) at(owner string) int {
	for i, x := range k {
		if x.owner == owner {
			return i
		}
	}
	return -1
}

// modelTests hold a backend to the stack, with random requests.
var modelTests = []test{
	{"Port_RandomCallersAndCalleesAreAStack", func(e *env) {
		s, _ := e.nesting()
		if s == nil {
			return
		}
		for round := range 4 {
			seed := rand.Uint64()
			e.stacked(s, rand.New(rand.NewPCG(seed, 0)), fmt.Sprintf("n%d", round), seed)
		}
	}},
}

// stacked sends random requests about name, and compares each answer with the model's.
func (e *env) stacked(s *raw, r *rand.Rand, name string, seed uint64) {
	e.Helper()
	var (
		model  stack
		owners = []string{"a:0"}
		last   string
	)
	fail := func(format string, args ...any) {
		e.Helper()
		e.Fatalf("seed %d, owners %v, %s: %s", seed, model, last, fmt.Sprintf(format, args...))
	}
	// Owners that were known, those that live more often, and now and then a new one.
	some := func(fresh int) string {
		if r.IntN(10) < fresh {
			owners = append(owners, fmt.Sprintf("a:%d", len(owners)))
			return owners[len(owners)-1]
		}
		if len(model) > 0 && r.IntN(4) > 0 {
			return model[r.IntN(len(model))].owner
		}
		return owners[r.IntN(len(owners))]
	}
	for range 250 {
		switch r.IntN(12) {
		case 0, 1: // from nowhere
			owner := some(8)
			last = "acquire " + owner
			again := model.at(owner) >= 0
			got := s.acquire(name, owner, long)
			if want := again || len(model) == 0; got.Granted != want {
				fail("%+v", got)
			}
			if got.Granted && !again {
				model = append(model, struct {
					owner string
					holds int
				}{owner, 1})
			}
		case 2, 3, 4, 5, 6: // from a caller
			owner, under, holds := some(9), some(0), 1+r.IntN(6)/5
			last = fmt.Sprintf("enter %s under %d of %s", owner, holds, under)
			again, at := model.at(owner) >= 0, model.at(under)
			got := s.enterUnder(name, owner, under, holds, long)
			absent := !again && (at < 0 || model[at].holds < holds)
			granted := again || !absent && at == len(model)-1 && model[at].holds == holds
			look := !absent && !granted && at == len(model)-1
			if got.Absent != absent || got.Granted != granted || (got.Look > 0) != look || (got.Remaining > 0) != (!absent && !granted) {
				fail("%+v, want granted %v, absent %v, a time to look %v", got, granted, absent, look)
			}
			if granted && !again {
				model = append(model, struct {
					owner string
					holds int
				}{owner, 1})
			}
		case 7, 8, 9: // a release, or of a hold
			owner, keep := some(0), r.IntN(6)/4
			last = fmt.Sprintf("release %s to %d", owner, keep)
			at := model.at(owner)
			if got := s.releaseNested(name, owner, keep); got != (at >= 0) {
				fail("held %v", got)
			}
			if at >= 0 && keep == 0 {
				model = slices.Delete(model, at, at+1)
			} else if at >= 0 {
				model[at].holds = keep
			}
		case 10:
			owner := some(0)
			last = "renew " + owner
			if got := s.renewNested(name, owner, time.Duration(r.IntN(2))*long); got != (model.at(owner) >= 0) {
				fail("held %v", got)
			}
		default: // the first owner enters again while it is alone, or all is lost
			if len(model) == 1 && r.IntN(2) == 0 {
				holds := 1 + r.IntN(2)
				last = "reenter"
				if holds > 1 && !s.reenter(name, model[0].owner, holds, long) {
					fail("not held")
				} else if holds > 1 {
					model[0].holds = holds
				}
			} else if r.IntN(4) == 0 {
				last = "force"
				was, err := s.ForceRelease(context.Background(), backend.Topic{Kind: backend.KindLock, Name: name})
				if err != nil || was != (len(model) > 0) {
					fail("%v, %v", was, err)
				}
				model = nil
			}
		}
		rec := s.record(name)
		if rec.Held != (len(model) > 0) || rec.Held && rec.Owner != model[0].owner || rec.Held && rec.Holds != model[0].holds {
			fail("the record is %+v", rec)
		}
	}
}
