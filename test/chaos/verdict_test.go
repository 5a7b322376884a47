//go:build linux

package chaos

import (
	"testing"
	"time"
)

func TestTheVerdictOnAHistory(t *testing.T) {
	const ms = int64(time.Millisecond)
	r := rules{lease: 1000 * ms, slack: 1000 * ms}
	var index int64
	// h is a visit of process p who waited since the beginning, was in from first to last, and left.
	h := func(p, first, last int64) visit {
		index++
		return visit{index: index, process: p, begun: ms, got: first * ms, first: first * ms, last: last * ms, leaving: last * ms, freed: (last + 1) * ms, end: released}
	}
	with := func(v visit, f func(*visit)) visit { f(&v); return v }
	token := func(v visit, n int64) visit { v.token = n; return v }
	dead := func(v visit) visit { v.end, v.freed, v.leaving = open, 0, 0; return v }
	// The same on a read-write lock, and on permits.
	reads := func(v visit) visit { v.name, v.reads = 3, true; return v }
	writes := func(v visit) visit { v.name = 3; return v }
	permit := func(v visit) visit { v.name = 4; return v }
	at := func(p promise, from, to int64) fault {
		return fault{kind: "x", promise: p, from: from * ms, to: to * ms, name: noName}
	}
	certainly := func(f fault) fault { f.certain = true; return f }
	named := func(f fault, name int64) fault { f.name = name; return f }

	for _, tt := range []struct {
		what                                              string
		visits                                            []visit
		faults                                            []fault
		stalls                                            []span
		violations, regressions, silences, excused, heals int
		illegal                                           bool // as porcupine sees it
	}{
		{what: "nothing"},
		{what: "one after the other", visits: []visit{h(1, 10, 20), h(2, 22, 30), h(1, 32, 40)}},
		{what: "written down in another order", visits: []visit{h(2, 22, 30), h(1, 10, 20)}},
		{what: "two at once", visits: []visit{h(1, 10, 20), h(2, 15, 30)}, violations: 1, illegal: true},
		{what: "two at once, one of them for long", visits: []visit{h(1, 10, 100), h(2, 20, 30), h(3, 50, 60)}, violations: 2, illegal: true},
		{what: "two at once, one of whom looked only once", visits: []visit{h(1, 10, 30), h(2, 20, 20)}, violations: 1, illegal: true},
		{what: "one after the other, who looked only once", visits: []visit{h(1, 10, 10), h(2, 12, 12), h(1, 14, 14)}},
		{what: "on different names", visits: []visit{h(1, 10, 20), with(h(2, 15, 30), func(v *visit) { v.name = 7 })}},
		{what: "a dead holder, and who came after its lease", visits: []visit{dead(h(1, 10, 20)), h(2, 1021, 1030)}},
		{what: "a dead holder's successor who comes within its time", visits: []visit{dead(h(1, 10, 20)), h(2, 19, 30)}, violations: 1, illegal: true},
		{what: "a dead holder whose lock stays", visits: []visit{dead(h(1, 10, 20)), h(2, 3100, 3110)}, silences: 1},
		{what: "a waiter that slept through a release", visits: []visit{h(1, 10, 20), h(2, 2200, 2210)}, silences: 1},
		{what: "a machine that stood still meanwhile", visits: []visit{h(1, 10, 20), h(2, 2200, 2210)}, stalls: []span{{100 * ms, 300 * ms}, {200 * ms, 400 * ms}}},
		{what: "nobody wanted it", visits: []visit{h(1, 10, 20), with(h(2, 3000, 3010), func(v *visit) { v.begun = 2990 * ms })}},
		{what: "a fault meanwhile", visits: []visit{h(1, 10, 20), h(2, 4000, 4010)}, faults: []fault{at(allHolds, 30, 2500)}},
		{what: "a fault is no excuse for so long", visits: []visit{h(1, 10, 20), h(2, 4600, 4610)}, faults: []fault{at(allHolds, 30, 2500)}, silences: 1},
		{what: "a Lock that failed may have it for a lease", visits: []visit{h(1, 10, 20), {index: 900, begun: 5 * ms, freed: 1500 * ms, end: failed}, h(2, 4400, 4410)}},
		{what: "tokens that rise", visits: []visit{token(h(1, 10, 20), 5), h(2, 30, 40), token(h(2, 50, 60), 6)}},
		{what: "a token twice", visits: []visit{token(h(1, 10, 20), 5), h(2, 30, 40), token(h(2, 50, 60), 5)}, regressions: 1, illegal: true},
		{what: "a fault that excuses nothing", visits: []visit{h(1, 10, 40), h(2, 30, 50)}, faults: []fault{at(allHolds, 15, 25)}, violations: 1, illegal: true},
		{what: "the store forgot", visits: []visit{h(1, 10, 40), with(h(2, 30, 50), func(v *visit) { v.begun = 26 * ms })}, faults: []fault{certainly(at(tokensRise, 15, 25))}},
		{what: "it forgot while somebody came", visits: []visit{h(1, 20, 40), h(2, 30, 50)}, faults: []fault{at(tokensRise, 15, 25)}, excused: 2},
		{what: "it forgot earlier", visits: []visit{with(h(1, 30, 50), func(v *visit) { v.begun = 26 * ms }), with(h(2, 40, 60), func(v *visit) { v.begun = 26 * ms })}, faults: []fault{at(tokensRise, 15, 25)}, violations: 1, illegal: true},
		{what: "it forgot another name", visits: []visit{h(1, 10, 40), h(2, 30, 50)}, faults: []fault{named(at(tokensRise, 15, 25), 7)}, violations: 1, illegal: true},
		{what: "it forgot, and the holder was not told", visits: []visit{with(h(1, 10, 1100), func(v *visit) { v.end = notHeld })}, faults: []fault{certainly(at(tokensRise, 15, 25))}, violations: 1},
		{
			what: "it forgot, tokens too", regressions: 1, illegal: true, faults: []fault{at(tokensRise, 25, 26)},
			visits: []visit{token(h(1, 10, 20), 5), token(with(h(2, 30, 40), func(v *visit) { v.begun = 29 * ms }), 4)},
		},
		{
			what: "a replica without the tokens took over", faults: []fault{at(tellsLater, 25, 26)},
			visits: []visit{token(h(1, 10, 20), 5), token(with(h(2, 30, 40), func(v *visit) { v.begun = 29 * ms }), 4)},
		},
		{
			what: "the fenced store refused a holder", violations: 1,
			visits: []visit{token(with(h(1, 10, 20), func(v *visit) { v.refused = 15 * ms }), 5)},
		},
		{
			what: "it refused one whom the store forgot", faults: []fault{at(tokensRise, 12, 13)},
			visits: []visit{token(with(h(1, 10, 20), func(v *visit) { v.refused = 15 * ms }), 5)},
		},
		{what: "readers", visits: []visit{reads(h(1, 10, 20)), reads(h(2, 15, 30)), reads(h(3, 16, 40)), reads(h(4, 19, 20)), writes(h(1, 42, 50)), reads(h(2, 52, 60))}},
		{what: "a reader beside a writer", visits: []visit{writes(h(1, 10, 20)), reads(h(2, 15, 30))}, violations: 1, illegal: true},
		{what: "a writer beside a reader", visits: []visit{reads(h(1, 10, 20)), reads(h(2, 15, 30)), writes(h(3, 29, 40))}, violations: 1, illegal: true},
		{what: "two writers", visits: []visit{writes(h(1, 10, 20)), writes(h(2, 15, 30))}, violations: 1, illegal: true},
		{what: "a writer whom readers keep waiting", visits: []visit{reads(h(1, 10, 2000)), reads(h(2, 15, 4000)), writes(h(3, 4002, 4010))}},
		{what: "a writer who waits beside a free lock", visits: []visit{reads(h(1, 10, 20)), reads(h(2, 15, 30)), writes(h(3, 3100, 3110))}, silences: 1},
		{what: "two permits", visits: []visit{permit(h(1, 10, 40)), permit(h(2, 11, 20)), permit(h(3, 22, 50))}},
		{what: "a third permit", visits: []visit{permit(h(1, 10, 40)), permit(h(2, 11, 20)), permit(h(3, 19, 50))}, violations: 1, illegal: true},
		{what: "a permit of the dead", visits: []visit{permit(dead(h(1, 10, 40))), permit(h(2, 11, 3000)), permit(h(3, 1042, 1050))}},
		{what: "a permit that stays with the dead", visits: []visit{permit(dead(h(1, 10, 40))), permit(h(2, 11, 5000)), permit(h(3, 3042, 3050))}, silences: 1},
		{what: "no permit is there", visits: []visit{permit(h(1, 10, 5000)), permit(h(2, 11, 5000)), permit(h(3, 5002, 5050))}},
		{
			what: "after a partition", heals: 1, visits: []visit{h(1, 10, 20), h(2, 510, 520), h(3, 530, 540)},
			faults: []fault{{kind: "x", from: 100 * ms, to: 500 * ms, name: noName, partition: true}},
		},
		{
			what: "long after a partition", heals: 1, silences: 1, visits: []visit{h(1, 10, 20), h(2, 1600, 1620)},
			faults: []fault{{kind: "x", from: 100 * ms, to: 500 * ms, name: noName, partition: true}},
		},
		{
			what: "long after a partition, and another fault", heals: 1, visits: []visit{h(1, 10, 20), h(2, 1600, 1620)},
			faults: []fault{{kind: "x", from: 100 * ms, to: 500 * ms, name: noName, partition: true}, at(allHolds, 600, 700)},
		},
	} {
		v := judge(tt.visits, tt.faults, tt.stalls, r)
		if len(v.violations) != tt.violations || len(v.regressions) != tt.regressions || len(v.silences) != tt.silences || v.excused != tt.excused || len(v.heals) != tt.heals {
			t.Errorf("%s: %v, %d heals\n%s", tt.what, v, len(v.heals), v.why())
		}
		var p verdict
		if p.linearize(tt.visits, tt.faults); p.bad() != tt.illegal {
			t.Errorf("%s: porcupine says illegal=%v", tt.what, p.bad())
		}
	}
}

func TestUndisturbedTime(t *testing.T) {
	stalls := []span{{50, 60}, {10, 20}, {15, 30}, {90, 200}, {0, 5}}
	for _, tt := range []struct{ from, to, want int64 }{{0, 100, 100 - 5 - 20 - 10 - 10}, {12, 18, 0}, {30, 50, 20}, {5, 15, 5}} {
		if got := undisturbed(tt.from, tt.to, stalls); got != tt.want {
			t.Errorf("undisturbed from %d to %d: %d, want %d", tt.from, tt.to, got, tt.want)
		}
	}
}

func TestTheLongestLull(t *testing.T) {
	visits := []visit{{first: 100}, {first: 20}, {first: 10}, {first: 400}, {}}
	faults := []fault{{from: 110, to: 380}}
	if took, over := lull(visits, faults); took != 80 || over != 100 {
		t.Errorf("%d, over at %d", took, over)
	}
}
