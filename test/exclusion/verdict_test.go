//go:build linux

package exclusion

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// rules is what a verdict needs to know of a run, in nanoseconds.
type rules struct {
	lease int64 // of all locks, the watchdog's
	slack int64 // how long a free lock may wait for its next holder
	// most is how many may be in at once who mind each other: 1 for a lock, which is
	// what 0 means too, the number of permits for a semaphore.
	most int
	// lost is how many of them may be gone for good: permits that nobody owns, whose
	// process was killed.
	lost int
}

// slack is more than a second because the machine may be busy with other things.
const slack = 4 * time.Second

// verdict is what the ledger comes to.
type verdict struct {
	acquisitions int
	handoffs     int // the next holder was in another process
	lost         int // holds that ended before they were unlocked
	dead         int // holds whose process was killed
	violations   []string
	silences     []string // the lock was free, somebody waited, and nobody came

	together int // the most who were in at once

	latest hold // who came last
	last   hold // since whom there was room for one more, on the name of the latest
}

func (v verdict) bad() bool { return len(v.violations)+len(v.silences) > 0 }

func (v verdict) String() string {
	return fmt.Sprintf("%d acquisitions, %d handoffs between processes, %d leases lost, %d dead holders, %d violations, %d stuck",
		v.acquisitions, v.handoffs, v.lost, v.dead, len(v.violations), len(v.silences))
}

// why is what is wrong, in full.
func (v verdict) why() string {
	const most = 5
	var b strings.Builder
	for _, list := range [][]string{v.violations, v.silences} {
		for i, s := range list {
			if i == most {
				fmt.Fprintf(&b, "... and %d more\n", len(list)-most)
				break
			}
			b.WriteString(s + "\n")
		}
	}
	return b.String()
}

// judge looks at each name's holds in the order of their claims.
func judge(holds []hold, faults []fault, r rules) verdict {
	var v verdict
	slices.SortFunc(holds, func(a, b hold) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.first, b.first))
	})
	killed := map[int64]bool{}
	for _, f := range faults {
		if f.what == "kill" {
			killed[int64(f.process)] = true
		}
	}
	most := max(r.most, 1)
	var (
		before, fenced hold   // of this name: the one before, the last that has a token
		inside         []hold // those whose claims have not ended
		lately         []hold // those who freed it last, the latest first
	)
	for i, h := range holds {
		if i > 0 && holds[i-1].name != h.name {
			before, fenced, inside, lately = hold{}, hold{}, nil, nil
		}
		v.acquisitions++
		switch {
		case h.end == open && killed[h.process]:
			v.dead++
		case h.end == notHeld || h.lost:
			v.lost++
		}
		if before.first != 0 && h.process != before.process {
			v.handoffs++
		}
		inside = slices.DeleteFunc(inside, func(o hold) bool { return h.first > o.last })
		var minds []hold
		for _, o := range inside {
			if !(h.shared && o.shared) && h.family != o.family {
				minds = append(minds, o)
			}
		}
		if len(minds) >= most {
			slices.SortFunc(minds, func(a, b hold) int { return cmp.Compare(b.last, a.last) })
			end := min(h.last, minds[most-1].last)
			v.violations = append(v.violations, fmt.Sprintf("%s holders at once for %v: %v and %v",
				number(most+1), time.Duration(end-h.first), join(minds[:most]), h))
		}
		v.together = max(v.together, len(inside)+1)
		inside = append(inside, h)
		// It was to be had when so many had left that there was room for one more.
		if room := most - r.lost; len(lately) >= room {
			v.quiet(lately[room-1], h.begun, h.first, faults, r, h.String())
		}
		at := slices.IndexFunc(lately, func(o hold) bool { return r.free(o) < r.free(h) })
		if at < 0 {
			at = len(lately)
		}
		lately = slices.Insert(lately, at, h)
		lately = lately[:min(len(lately), most)]
		if h.token != 0 {
			if fenced.token >= h.token {
				v.violations = append(v.violations, fmt.Sprintf("tokens do not rise: %v and then %v", fenced, h))
			}
			fenced = h
		}
		before = h
		if h.first >= v.latest.first {
			v.latest = h
		}
	}
	if room := most - r.lost; len(lately) >= room {
		v.last = lately[room-1]
	}
	return v
}

func number(n int) string {
	if n == 2 {
		return "two"
	}
	return fmt.Sprint(n)
}

func join(holds []hold) string {
	all := make([]string, len(holds))
	for i, h := range holds {
		all[i] = h.String()
	}
	return strings.Join(all, ", ")
}

// free is when h's place was to be had again.
func (r rules) free(h hold) int64 {
	if h.end != released {
		return max(h.last, h.freed) + r.lease
	}
	return h.freed
}

// silence judges the time after the latest claim; who waits has begun to at begun, or 0.
func (v *verdict) silence(waiting bool, begun, until int64, faults []fault, r rules) {
	if waiting && v.last.first != 0 {
		v.quiet(v.last, begun, until, faults, r, "nobody yet")
	}
}

// quiet judges the time between a hold and the next claim, or now.
func (v *verdict) quiet(before hold, begun, next int64, faults []fault, r rules, who string) {
	free := r.free(before)
	due := max(free, begun)
	for _, f := range faults {
		to := f.to
		if to == 0 {
			to = next // it goes on
		}
		if f.from > next || to+r.lease < due {
			continue
		}
		// A process that was stopped or killed may have taken the lock with its
		// last words; a Redis that stood still may have heard them only afterwards.
		due = max(due, f.from+r.lease)
		if f.redis {
			due = max(due, to+r.lease)
		}
	}
	if next-due > r.slack {
		v.silences = append(v.silences, fmt.Sprintf("the lock was to be had for %v: after %v came %s", time.Duration(next-free), before, who))
	}
}

func TestTheVerdictOnALedger(t *testing.T) {
	const ms = int64(time.Millisecond)
	r := rules{lease: 1000 * ms, slack: 2000 * ms}
	// a hold of process p that waited since the beginning.
	others := int64(100)
	h := func(p, first, last int64) hold {
		others++
		return hold{process: p, family: others, begun: 1, first: first * ms, last: last * ms, end: released, freed: (last + 1) * ms}
	}
	with := func(h hold, f func(*hold)) hold { f(&h); return h }
	reader := func(h hold) hold { h.shared = true; return h }
	family := func(h hold, of int64) hold { h.family = of; return h }
	kill := fault{what: "kill", from: 20 * ms, to: 20 * ms, process: 1}
	pause := fault{what: "pause", from: 20 * ms, to: 3000 * ms, redis: true, process: -1}

	for _, tt := range []struct {
		what                          string
		holds                         []hold
		faults                        []fault
		most, gone                    int
		violations, silences, handoff int
		dead, lost                    int
	}{
		{what: "nothing"},
		{what: "one after the other", holds: []hold{h(1, 10, 20), h(2, 22, 30), h(2, 32, 40)}, handoff: 1},
		{what: "written down in another order", holds: []hold{h(2, 22, 30), h(1, 10, 20)}, handoff: 1},
		{what: "overlapping", holds: []hold{h(1, 10, 20), h(2, 15, 30)}, violations: 1, handoff: 1},
		{what: "at the same instant", holds: []hold{h(1, 10, 20), h(2, 20, 30)}, violations: 1, handoff: 1},
		{what: "within a long one, behind a short one", holds: []hold{h(1, 10, 100), h(2, 20, 30), h(3, 50, 60)}, violations: 2, handoff: 2},
		{what: "on different names", holds: []hold{h(1, 10, 20), with(h(2, 15, 30), func(h *hold) { h.name = 7 })}},
		{
			what: "a dead holder and its successor", faults: []fault{kill}, dead: 1, handoff: 1,
			holds: []hold{with(h(1, 10, 20), func(h *hold) { h.end, h.freed = open, 0 }), h(2, 1021, 1030)},
		},
		{
			what: "a dead holder whose successor was too early", faults: []fault{kill}, dead: 1, violations: 1, handoff: 1,
			holds: []hold{with(h(1, 10, 20), func(h *hold) { h.end, h.freed = open, 0 }), h(2, 19, 30)},
		},
		{
			what: "a dead holder whose lock stays", faults: []fault{kill}, dead: 1, silences: 1, handoff: 1,
			holds: []hold{with(h(1, 10, 20), func(h *hold) { h.end, h.freed = open, 0 }), h(2, 3100, 3110)},
		},
		{
			what: "one that was told, and stayed", lost: 1, handoff: 1,
			holds: []hold{with(h(1, 10, 20), func(h *hold) { h.end, h.told, h.lost, h.freed = notHeld, 21*ms, true, 90*ms }), h(2, 31, 80)},
		},
		{what: "a waiter that slept through a release", holds: []hold{h(1, 10, 20), h(2, 3000, 3010)}, silences: 1, handoff: 1},
		{
			what: "nobody wanted it", handoff: 1,
			holds: []hold{h(1, 10, 20), with(h(2, 3000, 3010), func(h *hold) { h.begun = 2999 * ms })},
		},
		{what: "Redis was paused", holds: []hold{h(1, 10, 20), h(2, 5900, 5910)}, faults: []fault{pause}, handoff: 1},
		{what: "Redis was paused, and no excuse", holds: []hold{h(1, 10, 20), h(2, 6100, 6110)}, faults: []fault{pause}, silences: 1, handoff: 1},
		{
			what: "tokens", handoff: 2, violations: 1,
			holds: []hold{
				with(h(1, 10, 20), func(h *hold) { h.token = 5 }), h(2, 30, 40),
				with(h(1, 50, 60), func(h *hold) { h.token = 5 }),
			},
		},
		{what: "readers together", holds: []hold{reader(h(1, 10, 40)), reader(h(2, 15, 30)), reader(h(3, 20, 50))}, handoff: 2},
		{what: "a writer beside readers", holds: []hold{reader(h(1, 10, 40)), reader(h(2, 15, 20)), h(3, 30, 50)}, handoff: 2, violations: 1},
		{what: "a reader beside a writer", holds: []hold{h(1, 10, 40), reader(h(2, 15, 20)), reader(h(3, 41, 50))}, handoff: 2, violations: 1},
		{what: "a writer who becomes a reader", holds: []hold{family(h(1, 10, 40), 1), family(reader(h(1, 30, 80)), 1), reader(h(2, 50, 60)), h(2, 81, 90)}, handoff: 1},
		{what: "a reader under another's writer", holds: []hold{family(h(1, 10, 40), 1), family(reader(h(1, 30, 80)), 2)}, violations: 1},
		{what: "a writer beside one who became a reader", holds: []hold{family(h(1, 10, 40), 1), family(reader(h(1, 30, 80)), 1), h(2, 50, 60)}, handoff: 1, violations: 1},
		{what: "a reader that still reads is no reason to come", holds: []hold{reader(h(1, 10, 5000)), reader(h(2, 15, 30)), h(3, 5001, 5010)}, handoff: 2},
		{what: "a writer that slept through the last reader's release", holds: []hold{reader(h(1, 10, 3000)), reader(h(2, 15, 30)), h(3, 5010, 5020)}, handoff: 2, silences: 1},
		{what: "as many as there are permits", most: 2, holds: []hold{h(1, 10, 40), h(2, 15, 30), h(3, 31, 50), h(1, 41, 60)}, handoff: 3},
		{what: "one more than there are permits", most: 2, holds: []hold{h(1, 10, 40), h(2, 15, 30), h(3, 30, 50), h(1, 51, 60)}, handoff: 3, violations: 1},
		{what: "a permit that is not handed on", most: 2, holds: []hold{h(1, 10, 9000), h(2, 15, 30), h(3, 3000, 3010)}, handoff: 2, silences: 1},
		{what: "a permit that may be gone for good", most: 2, gone: 1, holds: []hold{h(1, 10, 4000), h(2, 15, 30), h(3, 3000, 3010)}, handoff: 2},
	} {
		r := r
		r.most, r.lost = tt.most, tt.gone
		v := judge(tt.holds, tt.faults, r)
		if v.acquisitions != len(tt.holds) || len(v.violations) != tt.violations || len(v.silences) != tt.silences ||
			v.handoffs != tt.handoff || v.dead != tt.dead || v.lost != tt.lost {
			t.Errorf("%s: %v\n%s", tt.what, v, v.why())
		}
	}

	v := judge([]hold{h(1, 10, 20)}, nil, r)
	v.silence(false, 0, 9000*ms, nil, r)
	v.silence(true, 0, 2000*ms, nil, r)
	v.silence(true, 1000*ms, 3000*ms, nil, r)
	if v.bad() {
		t.Errorf("nobody waits, or not for long: %s", v.why())
	}
	if v.silence(true, 0, 2100*ms, nil, r); !v.bad() {
		t.Error("somebody has waited for long for a free lock")
	}
}
