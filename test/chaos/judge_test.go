//go:build linux

package chaos

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// promise is what docs/guarantees.md promises while something happens.
type promise int

const (
	// allHolds: at most one holder, and tokens that rise.
	allHolds promise = iota
	// tokensRise: the store forgot what it had confirmed, by itself or because somebody told
	// it to. Who held a lock may overlap with who came next, for a lease at most; tokens rise
	// all the same.
	tokensRise
	// tellsLater: the store went back to an earlier state. Nothing is promised of those
	// who were in meanwhile, except that each is told.
	tellsLater
)

func (p promise) String() string {
	return [...]string{"exclusion, tokens", "tokens; holders are told within a lease", "nothing until it is over"}[p]
}

// fault is something that was done to a run.
type fault struct {
	kind     string
	promise  promise
	from, to int64
	// name is the only one that is concerned, or noName.
	name int64
	// certain: whoever held what is concerned has lost it.
	certain bool
	// partition: clients and servers could not talk.
	partition bool
	again     int64 // when the first came in after it
}

const noName = -1

// rules is what a verdict needs to know of a run, in nanoseconds.
type rules struct {
	lease int64 // the longest there is
	slack int64 // for how long more, undisturbed, a free lock may wait for its next holder
}

// verdict is what the history of a run comes to.
type verdict struct {
	operations   int // Locks and Unlocks that returned
	acquisitions int
	kinds        [shapesThere]int // of those
	readers      int              // of those of read-write locks
	handoffs     int              // the next was in another process, and no reader and no permit
	lost         int              // visits that ended before they were unlocked
	dead         int              // visits whose process was killed
	failed       int              // Locks that failed, other than because somebody held it
	excused      int              // visits of which nothing was promised
	stale        int              // writes that the fenced store refused
	longest      heal             // of heals
	heals        []int64          // for each name that was waited for over the end of a partition: until somebody was in

	violations  []string
	regressions []string // of tokens
	silences    []string // the lock was free, somebody waited, and nobody came
	checked     int      // histories that porcupine has checked
	events      int      // operations in them
}

func (v *verdict) add(o verdict) {
	v.operations += o.operations
	v.acquisitions += o.acquisitions
	v.readers += o.readers
	for s, n := range o.kinds {
		v.kinds[s] += n
	}
	v.handoffs += o.handoffs
	v.lost += o.lost
	v.dead += o.dead
	v.failed += o.failed
	v.excused += o.excused
	v.stale += o.stale
	if o.longest.took > v.longest.took {
		v.longest = o.longest
	}
	v.heals = append(v.heals, o.heals...)
	v.violations = append(v.violations, o.violations...)
	v.regressions = append(v.regressions, o.regressions...)
	v.silences = append(v.silences, o.silences...)
	v.checked += o.checked
	v.events += o.events
}

func (v verdict) bad() bool { return len(v.violations)+len(v.regressions)+len(v.silences) > 0 }

func (v verdict) String() string {
	return fmt.Sprintf("%d operations, %d acquisitions, %d handoffs between processes, %d lost, %d dead holders, %d failed Locks, %d excused; %d violations, %d token regressions, %d stuck; %d histories of %d operations checked",
		v.operations, v.acquisitions, v.handoffs, v.lost, v.dead, v.failed, v.excused, len(v.violations), len(v.regressions), len(v.silences), v.checked, v.events)
}

// why is what is wrong, in full.
func (v verdict) why() string {
	const most = 6
	var b strings.Builder
	for _, list := range [][]string{v.violations, v.regressions, v.silences} {
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

// claim is what is held against others of a visit: that it was inside from first to until.
type claim struct {
	visit
	until   int64 // last, or where a fault ended what was promised of it
	segment int   // tokens rise within a segment
	excused bool
	cut     bool // a fault ended what was promised
}

// claims are the visits that claim something, by name and in order.
func claims(visits []visit, faults []fault) []claim {
	var all []claim
	for _, v := range visits {
		if v.first == 0 {
			continue
		}
		c := claim{visit: v, until: v.last}
		for _, f := range faults {
			if f.promise == allHolds || f.name != noName && f.name != v.name {
				continue
			}
			if f.promise == tellsLater && v.begun > f.from {
				c.segment++
			}
			switch {
			case v.begun > f.to || v.last < f.from:
			case v.first < f.from:
				c.until, c.cut = min(c.until, f.from), true
			default:
				c.excused = true // it may have got in before or after
			}
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b claim) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.first, b.first))
	})
	return all
}

// judge judges the history of a run.
func judge(visits []visit, faults []fault, stalls []span, r rules) verdict {
	var v verdict
	for _, x := range visits {
		if x.got != 0 || x.end != open { // Lock returned
			v.operations++
		}
		if x.end == released || x.end == notHeld || x.end == unsure { // and Unlock
			v.operations++
		}
		switch {
		case x.end == failed:
			v.failed++
		case x.end == notHeld || x.lost:
			v.lost++
		case x.end == open && x.got != 0:
			v.dead++
		}
		if x.stale != 0 || x.refused != 0 {
			v.stale++
		}
	}
	all := claims(visits, faults)
	for from := 0; from < len(all); {
		to := from
		for to < len(all) && all[to].name == all[from].name {
			to++
		}
		v.overlaps(all[from:to])
		v.told(all[from:to], faults, r)
		v.writes(all[from:to], faults)
		from = to
	}
	v.acquisitions = len(all)
	v.waits(visits, faults, stalls, r)
	return v
}

// overlaps looks for more who were in at once than there is room for, and for tokens that do not rise, on one name.
func (v *verdict) overlaps(name []claim) {
	var inside []claim // those who may be, and the room that they take
	var used int
	var fenced claim
	for i, c := range name {
		v.kinds[c.shape()]++
		if c.reads {
			v.readers++
		}
		if i > 0 && c.process != name[i-1].process && !c.shares() {
			v.handoffs++
		}
		if c.excused {
			v.excused++
			continue
		}
		inside = slices.DeleteFunc(inside, func(o claim) bool {
			gone := o.until < c.first
			if gone {
				used -= o.takes()
			}
			return gone
		})
		if used += c.takes(); used > c.shape().room() {
			v.violations = append(v.violations, fmt.Sprintf("too many at once: %v, who came in beside %v", c, inside))
		}
		inside = append(inside, c)
		if c.token == 0 {
			continue
		}
		if fenced.first != 0 && fenced.segment == c.segment && c.token <= fenced.token {
			v.regressions = append(v.regressions, fmt.Sprintf("tokens do not rise: %v and then %v", fenced, c))
		}
		fenced = c
	}
}

// told looks for holders who believed in their lock for longer than a lease after they had lost it.
func (v *verdict) told(name []claim, faults []fault, r rules) {
	for _, c := range name {
		for _, f := range faults {
			if f.certain && (f.name == noName || f.name == c.name) && c.first < f.from && c.last > f.to+r.lease {
				v.violations = append(v.violations, fmt.Sprintf("not told within a lease of %q, which was over at %s: %v", f.kind, stamp(f.to), c))
			}
		}
	}
}

// writes looks for holders whom the fenced store refused though they held the lock.
func (v *verdict) writes(name []claim, faults []fault) {
	for _, c := range name {
		excused := c.refused == 0 || c.excused || c.cut || c.refused > c.last
		for _, f := range faults {
			excused = excused || f.promise == tellsLater && f.from < c.last && f.to > name[0].begun
		}
		if !excused {
			v.violations = append(v.violations, fmt.Sprintf("the fenced store refused a holder at %s, who held the lock: %v", stamp(c.refused), c))
		}
	}
}

// waits looks for locks that were free while somebody waited.
func (v *verdict) waits(visits []visit, faults []fault, stalls []span, r rules) {
	slices.SortFunc(visits, func(a, b visit) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.came(), b.came()))
	})
	var frees []int64 // when those who came before have left at the latest: the last who did, as many as there are permits
	var before int64  // when the last came in
	for i, x := range visits {
		if i > 0 && visits[i-1].name != x.name {
			frees, before = nil, 0
		}
		if x.first != 0 && before != 0 {
			free := x.free(frees)
			v.quiet(max(free, x.begun), x.first, faults, stalls, r, x.String())
			v.heal(before, free, x, faults, stalls)
		}
		before = max(before, x.first)
		at, _ := slices.BinarySearch(frees, x.frees(r.lease))
		if frees = slices.Insert(frees, at, x.frees(r.lease)); len(frees) > permitsMade {
			frees = frees[1:]
		}
	}
}

// free is since when a lock is to be had, or a permit, given when those who had it left, the last of them last.
func (x visit) free(frees []int64) int64 {
	at := len(frees) - 1
	if x.shape() == permits {
		at = len(frees) - permitsMade
	}
	if at < 0 {
		return 0
	}
	return frees[at]
}

// came is what visits of a name are in the order of.
func (x visit) came() int64 {
	switch {
	case x.first != 0:
		return x.first
	case x.freed != 0:
		return x.freed
	}
	return x.begun
}

// frees is when a lock is free again after a visit, at the latest.
func (x visit) frees(lease int64) int64 {
	switch x.end {
	case denied:
		return 0
	case released:
		return x.freed
	case failed: // it may have it all the same
		return x.freed + lease
	}
	return max(x.begun, x.got, x.last, x.freed) + lease
}

// quiet judges the time that somebody waited beside a free lock.
func (v *verdict) quiet(due, next int64, faults []fault, stalls []span, r rules, who string) {
	for _, f := range faults {
		if f.from <= next && f.to+r.lease >= due {
			due = max(due, f.to)
		}
	}
	if quiet := undisturbed(due, next, stalls); quiet > r.lease+r.slack {
		v.silences = append(v.silences, fmt.Sprintf("the lock was to be had from %s on, for %v, of which the machine ran %v: then came %s",
			stamp(due), time.Duration(next-due), time.Duration(quiet), who))
	}
}

// heal is how long it took, after what.
type heal struct {
	took int64
	what string
}

// healsWithin is how long after a partition a lock that is waited for may stay free, undisturbed.
const healsWithin = int64(time.Second)

// heal notes how long it took the first to get in after a partition. A reader may have had to wait for
// the claim of a writer who did not get in.
func (v *verdict) heal(before, free int64, x visit, faults []fault, stalls []span) {
	for _, f := range faults {
		if !f.partition || before >= f.to || x.begun >= f.to || x.first <= f.to || free >= x.first {
			continue
		}
		due := max(free, f.to)
		for _, g := range faults { // another that came between
			if g.from <= x.first {
				due = max(due, g.to)
			}
		}
		if due >= x.first {
			continue
		}
		h := heal{x.first - due, fmt.Sprintf("%s, over at %s, the lock free at %s: %v", f.kind, stamp(f.to), stamp(free), x)}
		v.heals = append(v.heals, h.took)
		if h.took > v.longest.took {
			v.longest = h
		}
		if !x.reads && undisturbed(due, x.first, stalls) > healsWithin {
			v.silences = append(v.silences, fmt.Sprintf("%v passed after %s", time.Duration(h.took), h.what))
		}
	}
}

// undisturbed is for how long between from and to all processes ran that wanted to.
func undisturbed(from, to int64, stalls []span) int64 {
	var here []span
	for _, s := range stalls {
		if s.to > from && s.from < to {
			here = append(here, span{max(s.from, from), min(s.to, to)})
		}
	}
	slices.SortFunc(here, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	left, at := to-from, int64(math.MinInt64)
	for _, s := range here {
		if s.to > at {
			left -= s.to - max(s.from, at)
			at = s.to
		}
	}
	return left
}

// lull is the longest time between faults in which nobody came in anywhere, and when it was over.
func lull(visits []visit, faults []fault) (longest, over int64) {
	var came []int64
	for _, x := range visits {
		if x.first != 0 {
			came = append(came, x.first)
		}
	}
	slices.Sort(came)
	for i := 1; i < len(came); i++ {
		from := came[i-1]
		for _, f := range faults {
			if f.from < came[i] {
				from = max(from, min(f.to, came[i]))
			}
		}
		if came[i]-from > longest {
			longest, over = came[i]-from, came[i]
		}
	}
	return longest, over
}
