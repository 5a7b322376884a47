package backendtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// hold is one owner of a lock of several owners.
type hold struct {
	owner string
	count int
}

// stack models a lock of several owners, as long as no lease ends: the owners in the order in which they
// came. It sends requests about one name and compares each answer with what the model says.
type stack struct {
	*raw
	random *rand.Rand
	seed   uint64
	name   string
	holds  []hold
	owners []string // all that were ever named
	last   string   // the last request, for messages
}

// modelTests hold a backend to the stack, with random requests.
var modelTests = where((*env).nests, "delegation", []test{
	{"Port_RandomCallersAndCalleesAreAStack", func(e *env) {
		s := e.bare()
		for round := range 4 {
			seed := rand.Uint64()
			k := &stack{
				raw: s, random: rand.New(rand.NewPCG(seed, 0)), seed: seed,
				name: fmt.Sprintf("n%d", round), owners: []string{"a:0"},
			}
			for range 250 {
				k.step()
			}
		}
	}},
})

// step sends one random request.
func (k *stack) step() {
	k.e.Helper()
	switch k.random.IntN(12) {
	case 0, 1:
		k.acquireOne()
	case 2, 3, 4, 5, 6:
		k.enterOne()
	case 7, 8, 9:
		k.releaseOne()
	case 10:
		owner := k.some(0)
		k.last = "renew " + owner
		held := k.renewNested(k.name, owner, time.Duration(k.random.IntN(2))*long)
		k.failIf(held != (k.at(owner) >= 0), "held %v", held)
	default: // the first owner enters again while it is alone, or all is lost
		if len(k.holds) == 1 && k.random.IntN(2) == 0 {
			k.reenterFirst()
		} else if k.random.IntN(4) == 0 {
			k.last = "force"
			was, err := k.ForceRelease(background, topic(k.name))
			k.failIf(err != nil || was != (len(k.holds) > 0), "%v, %v", was, err)
			k.holds = nil
		}
	}
	rec, held := k.record(k.name), len(k.holds) > 0
	k.failIf(rec.Held != held || held && (hold{rec.Owner, rec.Holds}) != k.holds[0], "the record is %+v", rec)
}

func (k *stack) failIf(failed bool, format string, args ...any) {
	k.e.Helper()
	k.e.fatalIf(failed, "seed %d, owners %v, %s: %s", k.seed, k.holds, k.last, fmt.Sprintf(format, args...))
}

// at returns where an owner is in the stack; -1 if it is not.
func (k *stack) at(owner string) int {
	return slices.IndexFunc(k.holds, func(h hold) bool { return h.owner == owner })
}

// some draws an owner: known ones, those that live more often, and in fresh of ten cases a new one.
func (k *stack) some(fresh int) string {
	r := k.random
	if r.IntN(10) < fresh {
		k.owners = append(k.owners, fmt.Sprintf("a:%d", len(k.owners)))
		return k.owners[len(k.owners)-1]
	}
	if len(k.holds) > 0 && r.IntN(4) > 0 {
		return k.holds[r.IntN(len(k.holds))].owner
	}
	return k.owners[r.IntN(len(k.owners))]
}

// acquireOne asks for the lock under no owner.
func (k *stack) acquireOne() {
	owner := k.some(8)
	k.last = "acquire " + owner
	again := k.at(owner) >= 0
	got := k.acquire(k.name, owner, long)
	k.failIf(got.Granted != (again || len(k.holds) == 0), "%+v", got)
	if got.Granted && !again {
		k.holds = append(k.holds, hold{owner, 1})
	}
}

// enterOne asks to enter under an owner.
func (k *stack) enterOne() {
	owner, under, holds := k.some(9), k.some(0), 1+k.random.IntN(6)/5
	k.last = fmt.Sprintf("enter %s under %d of %s", owner, holds, under)
	again, at := k.at(owner) >= 0, k.at(under)
	top := at >= 0 && at == len(k.holds)-1
	absent := !again && (at < 0 || k.holds[at].count < holds)
	granted := again || !absent && top && k.holds[at].count == holds
	look := !absent && !granted && top
	got := k.enterUnder(k.name, owner, under, holds, long)
	k.failIf(got.Absent != absent || got.Granted != granted, "%+v, want granted %v, absent %v", got, granted, absent)
	k.failIf((got.AskAfter > 0) != look || (got.Remaining > 0) != (!absent && !granted), "%+v, want a time to ask %v", got,
		look)
	if granted && !again {
		k.holds = append(k.holds, hold{owner, 1})
	}
}

// releaseOne releases an owner, or one hold of it.
func (k *stack) releaseOne() {
	owner, keep := k.some(0), k.random.IntN(6)/4
	k.last = fmt.Sprintf("release %s to %d", owner, keep)
	at := k.at(owner)
	held := k.releaseNested(k.name, owner, keep)
	k.failIf(held != (at >= 0), "held %v", held)
	if at >= 0 && keep == 0 {
		k.holds = slices.Delete(k.holds, at, at+1)
	} else if at >= 0 {
		k.holds[at].count = keep
	}
}

// reenterFirst has the only owner enter again, in one of two cases.
func (k *stack) reenterFirst() {
	k.last = "reenter"
	if holds := 1 + k.random.IntN(2); holds > 1 {
		k.failIf(!k.reenter(k.name, k.holds[0].owner, holds, long), "not held")
		k.holds[0].count = holds
	}
}
