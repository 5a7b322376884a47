//go:build linux

package chaos

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/mortise-go/mortise/test/internal/harness"
)

type (
	visit = harness.Visit
	fault = harness.Fault
	span  = harness.Span
)

// The verdict is the harness's; the rows judge it, and porcupine beside it.
func TestTheVerdictOnALedger(t *testing.T) {
	const ms = int64(time.Millisecond)
	var index int64
	// h is a visit of process p that waited since the beginning, was in from first to last, and left.
	h := func(p, first, last int64) visit {
		index++
		m := harness.Moments{
			Begun: ms, Got: first * ms, First: first * ms, Last: last * ms, Leaving: last * ms, Freed: (last + 1) * ms,
		}
		return visit{Index: index, Family: index + 1, Process: p, Moments: m, End: harness.Released, Room: 1, Takes: 1}
	}
	failed := func(begun, freed int64) visit {
		return visit{Index: 900, Moments: harness.Moments{Begun: begun * ms, Freed: freed * ms}, End: harness.Failed}
	}
	with := func(v visit, f func(*visit)) visit { f(&v); return v }
	token := func(v visit, n int64) visit { v.Token = n; return v }
	dead := func(v visit) visit { v.End, v.Freed, v.Leaving = harness.Open, 0, 0; return v }
	killedWaiting := func(v visit) visit { // its process was killed before it got in
		v.Moments, v.End = harness.Moments{Begun: v.Begun}, harness.Open
		return v
	}
	// The same on a fair lock, on a read-write lock, and on permits.
	as := func(s harness.Shape, takes int) func(visit) visit {
		return func(v visit) visit { v.Shape, v.Room, v.Takes = s, s.Room(2), takes; return v }
	}
	fair, permit := as(harness.Fair, 1), as(harness.Permits, 1)
	reads, writes := as(harness.ReadWrite, 1), as(harness.ReadWrite, harness.Crowd)
	family := func(v visit) visit { v.Family = -1; return v }
	at := func(p harness.Promise, from, to int64) fault {
		return fault{Kind: "x", Promise: p, From: from * ms, To: to * ms, Name: harness.NoName, Process: harness.NoProcess}
	}
	certainly := func(f fault) fault { f.Certain = true; return f }
	named := func(f fault, name int64) fault { f.Name = name; return f }
	kill, pause := at(harness.AllHolds, 20, 3000), at(harness.AllHolds, 20, 3000)
	kill.Process = 1
	partition := at(harness.AllHolds, 100, 500)
	partition.Partition = true

	for _, tt := range []struct {
		what                                              string
		visits                                            []visit
		faults                                            []fault
		stalls                                            []span
		late                                              bool // the slack begins a lease after a fault
		gone                                              int
		violations, regressions, silences, excused, heals int
		dead, lost                                        int
		illegal                                           bool // as porcupine sees it, which knows no families
	}{
		{what: "nothing"},
		{what: "one after the other", visits: []visit{h(1, 10, 20), h(2, 22, 30), h(1, 32, 40)}},
		{what: "written down in another order", visits: []visit{h(2, 22, 30), h(1, 10, 20)}},
		{what: "two at once", visits: []visit{h(1, 10, 20), h(2, 15, 30)}, violations: 1, illegal: true},
		{what: "two at once, one of them for long", violations: 2, illegal: true,
			visits: []visit{h(1, 10, 100), h(2, 20, 30), h(3, 50, 60)}},
		{what: "two at once, one of whom looked only once", violations: 1, illegal: true,
			visits: []visit{h(1, 10, 30), h(2, 20, 20)}},
		{what: "one after the other, which looked only once", visits: []visit{h(1, 10, 10), h(2, 12, 12), h(1, 14, 14)}},
		{what: "on different names", visits: []visit{h(1, 10, 20), with(h(2, 15, 30), func(v *visit) { v.Name = 7 })}},
		{what: "a dead holder, and one after its lease", dead: 1, visits: []visit{dead(h(1, 10, 20)), h(2, 1021, 1030)}},
		{what: "a dead holder's successor that comes within its time", dead: 1, violations: 1, illegal: true,
			visits: []visit{dead(h(1, 10, 20)), h(2, 19, 30)}},
		{what: "a dead holder whose lock stays", dead: 1, visits: []visit{dead(h(1, 10, 20)), h(2, 3100, 3110)}, silences: 1},
		{what: "a waiter that slept through a release", visits: []visit{h(1, 10, 20), h(2, 2200, 2210)}, silences: 1},
		{what: "a machine that stood still meanwhile",
			stalls: []span{{From: 100 * ms, To: 300 * ms}, {From: 200 * ms, To: 400 * ms}},
			visits: []visit{h(1, 10, 20), h(2, 2200, 2210)}},
		{what: "it was not wanted",
			visits: []visit{h(1, 10, 20), with(h(2, 3000, 3010), func(v *visit) { v.Begun = 2990 * ms })}},
		{what: "a fault meanwhile", faults: []fault{at(harness.AllHolds, 30, 2500)},
			visits: []visit{h(1, 10, 20), h(2, 4000, 4010)}},
		{what: "a fault is no excuse for so long", faults: []fault{at(harness.AllHolds, 30, 2500)}, silences: 1,
			visits: []visit{h(1, 10, 20), h(2, 4600, 4610)}},
		{what: "a Lock that failed may have it for a lease",
			visits: []visit{h(1, 10, 20), failed(5, 1500), h(2, 4400, 4410)}},
		{what: "tokens that rise", visits: []visit{token(h(1, 10, 20), 5), h(2, 30, 40), token(h(2, 50, 60), 6)}},
		{what: "a token twice", regressions: 1, illegal: true,
			visits: []visit{token(h(1, 10, 20), 5), h(2, 30, 40), token(h(2, 50, 60), 5)}},
		{what: "a fault that excuses nothing", faults: []fault{at(harness.AllHolds, 15, 25)}, violations: 1, illegal: true,
			visits: []visit{h(1, 10, 40), h(2, 30, 50)}},
		{what: "the store forgot", faults: []fault{certainly(at(harness.TokensRise, 15, 25))},
			visits: []visit{h(1, 10, 40), with(h(2, 30, 50), func(v *visit) { v.Begun = 26 * ms })}},
		{what: "it forgot while a process came", faults: []fault{at(harness.TokensRise, 15, 25)}, excused: 2,
			visits: []visit{h(1, 20, 40), h(2, 30, 50)}},
		{what: "it forgot earlier", faults: []fault{at(harness.TokensRise, 15, 25)}, violations: 1, illegal: true,
			visits: []visit{with(h(1, 30, 50), func(v *visit) { v.Begun = 26 * ms }),
				with(h(2, 40, 60), func(v *visit) { v.Begun = 26 * ms })}},
		{what: "it forgot another name",
			visits: []visit{h(1, 10, 40), h(2, 30, 50)}, violations: 1, illegal: true,
			faults: []fault{named(at(harness.TokensRise, 15, 25), 7)}},
		{what: "it forgot, and the holder was not told",
			visits: []visit{with(h(1, 10, 1100), func(v *visit) { v.End = harness.NotHeld })},
			faults: []fault{certainly(at(harness.TokensRise, 15, 25))}, violations: 1},
		{
			what: "it forgot, tokens too", regressions: 1, illegal: true, faults: []fault{at(harness.TokensRise, 25, 26)},
			visits: []visit{token(h(1, 10, 20), 5), token(with(h(2, 30, 40), func(v *visit) { v.Begun = 29 * ms }), 4)},
		},
		{
			what: "a replica without the tokens took over", faults: []fault{at(harness.TellsLater, 25, 26)},
			visits: []visit{token(h(1, 10, 20), 5), token(with(h(2, 30, 40), func(v *visit) { v.Begun = 29 * ms }), 4)},
		},
		{
			what: "the fenced store refused a holder", violations: 1,
			visits: []visit{token(with(h(1, 10, 20), func(v *visit) { v.Refused = 15 * ms }), 5)},
		},
		{
			what: "it refused one whom the store forgot", faults: []fault{at(harness.TokensRise, 12, 13)},
			visits: []visit{token(with(h(1, 10, 20), func(v *visit) { v.Refused = 15 * ms }), 5)},
		},
		{what: "readers",
			visits: []visit{reads(h(1, 10, 20)), reads(h(2, 15, 30)), reads(h(3, 16, 40)), reads(h(4, 19, 20)),
				writes(h(1, 42, 50)), reads(h(2, 52, 60))}},
		{what: "a reader beside a writer", violations: 1, illegal: true,
			visits: []visit{writes(h(1, 10, 20)), reads(h(2, 15, 30))}},
		{what: "a writer beside a reader", violations: 1, illegal: true,
			visits: []visit{reads(h(1, 10, 20)), reads(h(2, 15, 30)), writes(h(3, 29, 40))}},
		{what: "two writers", violations: 1, illegal: true,
			visits: []visit{writes(h(1, 10, 20)), writes(h(2, 15, 30))}},
		{what: "a writer whom readers keep waiting",
			visits: []visit{reads(h(1, 10, 2000)), reads(h(2, 15, 4000)), writes(h(3, 4002, 4010))}},
		{what: "a writer that waits beside a free lock", silences: 1,
			visits: []visit{reads(h(1, 10, 20)), reads(h(2, 15, 30)), writes(h(3, 3100, 3110))}},
		{what: "two permits", visits: []visit{permit(h(1, 10, 40)), permit(h(2, 11, 20)), permit(h(3, 22, 50))}},
		{what: "a third permit", violations: 1, illegal: true,
			visits: []visit{permit(h(1, 10, 40)), permit(h(2, 11, 20)), permit(h(3, 19, 50))}},
		{what: "a permit of the dead",
			visits: []visit{permit(dead(h(1, 10, 40))), permit(h(2, 11, 3000)), permit(h(3, 1042, 1050))}},
		{what: "a permit that stays with the dead", silences: 1,
			visits: []visit{permit(dead(h(1, 10, 40))), permit(h(2, 11, 5000)), permit(h(3, 3042, 3050))}},
		{what: "no permit is there",
			visits: []visit{permit(h(1, 10, 5000)), permit(h(2, 11, 5000)), permit(h(3, 5002, 5050))}},
		{
			what: "after a partition", heals: 1, visits: []visit{h(1, 10, 20), h(2, 510, 520), h(3, 530, 540)},
			faults: []fault{partition},
		},
		{
			what: "long after a partition", heals: 1, silences: 1, visits: []visit{h(1, 10, 20), h(2, 1600, 1620)},
			faults: []fault{partition},
		},
		{
			what: "long after a partition, behind the place of a killed process", heals: 1,
			visits: []visit{fair(h(1, 10, 20)), killedWaiting(fair(h(3, 0, 0))), fair(h(2, 2100, 2120))},
			faults: []fault{partition},
		},
		{
			what: "longer after a partition, behind the place of a killed process", heals: 1, silences: 2,
			visits: []visit{fair(h(1, 10, 20)), killedWaiting(fair(h(3, 0, 0))), fair(h(2, 3100, 3120))},
			faults: []fault{partition},
		},
		{
			what: "long after a partition, beside a killed process without a place", heals: 1, silences: 1,
			visits: []visit{h(1, 10, 20), killedWaiting(h(3, 0, 0)), h(2, 2100, 2120)}, faults: []fault{partition},
		},
		{
			what: "long after a partition, and another fault", heals: 1, visits: []visit{h(1, 10, 20), h(2, 1600, 1620)},
			faults: []fault{partition, at(harness.AllHolds, 600, 700)},
		},
		{what: "at the same instant", visits: []visit{h(1, 10, 20), h(2, 20, 30)}, violations: 1, illegal: true},
		{what: "told, and stayed", lost: 1, visits: []visit{
			with(h(1, 10, 20), func(v *visit) { v.End, v.Told, v.Lost, v.Freed = harness.NotHeld, 21*ms, true, 90*ms }),
			h(2, 31, 80)}},
		{what: "Redis was paused", late: true, visits: []visit{h(1, 10, 20), h(2, 5900, 5910)}, faults: []fault{pause}},
		{what: "Redis was paused, and no excuse", late: true, visits: []visit{h(1, 10, 20), h(2, 6100, 6110)},
			faults: []fault{pause}, silences: 1},
		{what: "a process was killed", late: true, visits: []visit{h(1, 10, 20), h(2, 3000, 3010)}, faults: []fault{kill}},
		{what: "a process was killed, and no excuse", late: true, visits: []visit{h(1, 10, 20), h(2, 3100, 3110)},
			faults: []fault{kill}, silences: 1},
		{what: "a reader beside a writer, and one after it", illegal: true, violations: 1,
			visits: []visit{writes(h(1, 10, 40)), reads(h(2, 15, 20)), reads(h(3, 41, 50))}},
		{what: "a writer that becomes a reader", visits: []visit{
			family(writes(h(1, 10, 40))), family(reads(h(1, 30, 80))), reads(h(2, 50, 60)), writes(h(2, 81, 90))}},
		{what: "a reader under another's writer", violations: 1,
			visits: []visit{family(writes(h(1, 10, 40))), reads(h(1, 30, 80))}},
		{what: "a writer beside one that became a reader", violations: 1, visits: []visit{
			family(writes(h(1, 10, 40))), family(reads(h(1, 30, 80))), writes(h(2, 50, 60))}},
		{what: "a reader that still reads is no reason to come",
			visits: []visit{reads(h(1, 10, 5000)), reads(h(2, 15, 30)), writes(h(3, 5001, 5010))}},
		{what: "a writer that slept through the last reader's release", silences: 1,
			visits: []visit{reads(h(1, 10, 3000)), reads(h(2, 15, 30)), writes(h(3, 5010, 5020))}},
		{what: "as many as there are permits",
			visits: []visit{permit(h(1, 10, 40)), permit(h(2, 15, 30)), permit(h(3, 31, 50)), permit(h(1, 41, 60))}},
		{what: "one more than there are permits", violations: 1, illegal: true,
			visits: []visit{permit(h(1, 10, 40)), permit(h(2, 15, 30)), permit(h(3, 30, 50)), permit(h(1, 51, 60))}},
		{what: "a permit that is not handed on", silences: 1,
			visits: []visit{permit(h(1, 10, 9000)), permit(h(2, 15, 30)), permit(h(3, 3000, 3010))}},
		{what: "a permit that may be gone for good", gone: 1,
			visits: []visit{permit(h(1, 10, 4000)), permit(h(2, 15, 30)), permit(h(3, 3000, 3010))}},
	} {
		r := harness.Rules{Lease: 1000 * ms, Slack: 2000 * ms, Gone: tt.gone}
		if tt.late {
			r.After = r.Lease
		}
		v := harness.Judge(tt.visits, tt.faults, tt.stalls, r)
		if len(v.Violations) != tt.violations || len(v.Regressions) != tt.regressions || len(v.Silences) != tt.silences ||
			v.Excused != tt.excused || len(v.Heals) != tt.heals || tt.dead != 0 && v.Dead != tt.dead ||
			tt.lost != 0 && v.Lost != tt.lost {
			t.Errorf("%s: %v, %d heals\n%s", tt.what, v, len(v.Heals), v.Why())
		}
		families := false
		for _, x := range tt.visits {
			families = families || x.Family < 0
		}
		var p harness.Verdict
		if linearize(&p, tt.visits, tt.faults); !families && p.Bad() != tt.illegal {
			t.Errorf("%s: porcupine says illegal=%v", tt.what, p.Bad())
		}
	}

	r := harness.Rules{Lease: 1000 * ms, Slack: 2000 * ms, After: 1000 * ms}
	v := harness.Judge([]visit{h(1, 10, 20), h(2, 22, 30), h(2, 32, 40)}, nil, nil, r)
	harness.ErrorIf(t, v.Handoffs != 1 || v.Acquisitions != 3 || v.Operations != 6 || v.Together != 1 ||
		v.Latest.First != 32*ms, "two processes: %v, %+v", v, v.Latest)
	v.Silence(0, 2000*ms, nil, r)
	v.Silence(1000*ms, 3000*ms, nil, r)
	if v.Bad() {
		t.Errorf("a waiter, and not for long: %s", v.Why())
	}
	if v.Silence(0, 2100*ms, nil, r); !v.Bad() {
		t.Error("a waiter has waited for long for a free lock")
	}
}

func TestUndisturbedTime(t *testing.T) {
	var stalls []span
	for _, s := range [][2]int64{{50, 60}, {10, 20}, {15, 30}, {90, 200}, {0, 5}} {
		stalls = append(stalls, span{From: s[0], To: s[1]})
	}
	for _, tt := range []struct{ from, to, want int64 }{{0, 100, 100 - 5 - 20 - 10 - 10}, {12, 18, 0}, {30, 50, 20},
		{5, 15, 5}} {
		got := harness.Undisturbed(tt.from, tt.to, stalls)
		harness.ErrorIf(t, got != tt.want, "undisturbed from %d to %d: %d, want %d", tt.from, tt.to, got, tt.want)
	}
}

func TestTheLongestLull(t *testing.T) {
	var visits []visit
	for _, first := range []int64{100, 20, 10, 400, 0} {
		visits = append(visits, visit{Moments: harness.Moments{First: first}})
	}
	faults := []fault{{From: 110, To: 380}}
	took, over := lull(visits, faults)
	harness.ErrorIf(t, took != 80 || over != 100, "%d, over at %d", took, over)
}

// A lock as porcupine is told it: a visit gets in when there is room, with a token larger than all before; and a
// visit's lease ends, by Unlock, by time, or because the store forgot it. A plain lock has room for one, a
// read-write lock for any number of readers or a writer, which takes it all, permits for as many as were made. A
// visit is those two. When the second was is known from its two sides: not before the lease last said that it is
// held, and, where Unlock returned nil, not after that.
type (
	record struct {
		used  int   // of the room
		token int64 // the largest that was given out
	}
	step struct {
		in          bool
		visit       int64
		takes, room int
		token       int64
	}
)

var model = porcupine.Model{
	Init: func() any { return record{} },
	Step: func(state, input, _ any) (bool, any) {
		r, s := state.(record), input.(step)
		if !s.in { // after it came: it is asked about in this order
			return true, record{r.used - s.takes, r.token}
		}
		if r.used+s.takes > s.room || s.token != 0 && s.token <= r.token {
			return false, r
		}
		return true, record{r.used + s.takes, max(r.token, s.token)}
	},
	DescribeOperation: func(input, _ any) string {
		s := input.(step)
		if s.in {
			return fmt.Sprintf("visit %d takes %d of %d with token %d", s.visit, s.takes, s.room, s.token)
		}
		return fmt.Sprintf("visit %d has it no more", s.visit)
	},
}

// history is what porcupine is asked about: visits of one name and segment. Where several may be in
// at once, each is said to have got in as late as it may have: earlier could only stand in others' way, so
// this makes no history wrong that was right, nor the reverse; and spares it all subsets of the waiters.
func history(name []harness.Claim) (all []porcupine.Operation) {
	for _, c := range name {
		client := len(all) / 2
		began := c.Begun
		if c.Shares() {
			began = c.First
		}
		in := step{true, c.Index, c.Takes, c.Room, c.Token}
		out := in
		out.in = false
		gone := c.Until + 1 // at until it is still in; else a visit that looked only once might have gone before it came
		over := int64(math.MaxInt64)
		if c.End == harness.Released && !c.Cut {
			over = max(c.Freed, gone)
		}
		all = append(all,
			porcupine.Operation{ClientId: client, Input: in, Call: began, Return: c.First},
			porcupine.Operation{ClientId: client, Input: out, Call: gone, Return: over})
	}
	return all
}

// linearize has porcupine check each name's history.
func linearize(v *harness.Verdict, visits []harness.Visit, faults []harness.Fault) {
	type part struct {
		name    int64
		segment int
	}
	parts := map[part][]harness.Claim{}
	for _, c := range harness.Claims(visits, faults) {
		if !c.Excused {
			p := part{c.Name, c.Segment}
			parts[p] = append(parts[p], c)
		}
	}
	for p, name := range parts {
		h := history(name)
		v.Checked++
		v.Events += len(h)
		switch porcupine.CheckOperationsTimeout(model, h, 5*time.Minute) {
		case porcupine.Illegal:
			v.Violations = append(v.Violations, fmt.Sprintf("porcupine: the history of name %d is no lock's, "+
				"in %d visits from %v on", p.name, len(name), name[0]))
		case porcupine.Unknown:
			v.Violations = append(v.Violations, fmt.Sprintf("porcupine: the history of name %d, %d visits, was not decided",
				p.name, len(name)))
		}
	}
}
