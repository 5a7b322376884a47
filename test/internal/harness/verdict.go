//go:build linux

package harness

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Promise is what docs/explanation/guarantees.md promises while something happens.
type Promise int

const (
	// AllHolds is at most one holder, and tokens that rise.
	AllHolds Promise = iota
	// TokensRise is for a store that forgot what it had confirmed, by itself or because it was told
	// to. The holder of a lock may overlap with the next, for a lease at most; tokens rise all the
	// same.
	TokensRise
	// TellsLater is for a store that went back to an earlier state. Nothing is promised of visits
	// that were inside meanwhile, except that each is told.
	TellsLater
)

func (p Promise) String() string {
	return [...]string{"exclusion, tokens", "tokens; holders are told within a lease", "nothing until it is over"}[p]
}

// Fault is something that was done to a run.
type Fault struct {
	Kind     string
	Promise  Promise
	From, To int64 // To 0: it goes on
	// Name is the only one that is concerned, or NoName.
	Name int64
	// Process is the process that was stopped or killed, in runs that count a fault of a process by
	// its beginning; else NoProcess.
	Process int
	// Certain: the holder of what is concerned has lost it.
	Certain bool
	// Partition: clients and servers could not talk.
	Partition bool
	Again     int64 // when the first came in after it
}

// No name, and no process.
const (
	NoName    = -1
	NoProcess = -1
)

// over is until when the fault is an excuse that a lock is free; next if it goes on.
func (f Fault) over(next int64) int64 {
	switch {
	case f.Process != NoProcess:
		return f.From // others go on; its locks stay for a lease
	case f.To == 0:
		return next
	}
	return f.To
}

// Rules is what a verdict needs to know of a run, in nanoseconds.
type Rules struct {
	Lease int64 // the longest there is
	Slack int64 // for how long, undisturbed, a free lock may wait for its next holder
	// After is how long after a fault Slack begins: a server that stood still may have heard only
	// afterwards what it was asked for.
	After int64
	// Gone is how many permits may be gone for good: without a lease, and of a process that was
	// killed.
	Gone int
}

// Verdict is what the ledger of a run comes to.
type Verdict struct {
	Operations   int // Locks and Unlocks that returned
	Acquisitions int
	Kinds        [Shapes]int // of those
	Readers      int         // of those of read-write locks
	Handoffs     int         // the next was in another process, and no reader and no permit
	Lost         int         // visits that ended before they were unlocked
	Dead         int         // visits whose process was killed while it was inside
	Failed       int         // Locks that failed, other than because the lock was held
	Excused      int         // visits of which nothing was promised
	Stale        int         // writes that the fenced store refused
	Together     int         // the most that were inside at once
	Latest       Visit       // the last that came in
	Healing
	Findings

	free int64 // since when the lock of the last name is to be had
}

// Healing is how fast names recovered that were waited for over the end of a partition.
type Healing struct {
	Longest Heal    // of Heals
	Heals   []int64 // until a visit was inside
}

// Findings are what must not be, and how far porcupine looked.
type Findings struct {
	Violations  []string
	Regressions []string // of tokens
	Silences    []string // the lock was free and waited for, and no visit came
	Checked     int      // histories that porcupine has checked
	Events      int      // operations in them
}

// Add adds another run's.
func (v *Verdict) Add(o Verdict) {
	for s, n := range o.Kinds {
		v.Kinds[s] += n
	}
	for to, n := range map[*int]int{
		&v.Operations: o.Operations, &v.Acquisitions: o.Acquisitions, &v.Readers: o.Readers, &v.Handoffs: o.Handoffs,
		&v.Lost: o.Lost, &v.Dead: o.Dead, &v.Failed: o.Failed, &v.Excused: o.Excused, &v.Stale: o.Stale,
		&v.Checked: o.Checked, &v.Events: o.Events,
	} {
		*to += n
	}
	v.Together = max(v.Together, o.Together)
	if o.Longest.Took > v.Longest.Took {
		v.Longest = o.Longest
	}
	v.Heals = append(v.Heals, o.Heals...)
	v.Violations = append(v.Violations, o.Violations...)
	v.Regressions = append(v.Regressions, o.Regressions...)
	v.Silences = append(v.Silences, o.Silences...)
}

// Bad reports whether anything is wrong.
func (v Verdict) Bad() bool { return v.Overlaps() || len(v.Silences) > 0 }

// Overlaps reports whether too many were inside at once, or a token did not rise.
func (v Verdict) Overlaps() bool { return len(v.Violations)+len(v.Regressions) > 0 }

func (v Verdict) String() string {
	return fmt.Sprintf("%d operations, %d acquisitions, %d handoffs between processes, %d lost, "+
		"%d dead holders, %d failed Locks, %d excused; "+
		"%d violations, %d token regressions, %d stuck; %d histories of %d operations checked",
		v.Operations, v.Acquisitions, v.Handoffs, v.Lost, v.Dead, v.Failed, v.Excused,
		len(v.Violations), len(v.Regressions), len(v.Silences), v.Checked, v.Events)
}

// Why is what is wrong, in full.
func (v Verdict) Why() string {
	const most = 6
	var b strings.Builder
	for _, list := range [][]string{v.Violations, v.Regressions, v.Silences} {
		for _, s := range list[:min(len(list), most)] {
			b.WriteString(s + "\n")
		}
		if len(list) > most {
			fmt.Fprintf(&b, "... and %d more\n", len(list)-most)
		}
	}
	return b.String()
}

func (v *Verdict) violation(format string, args ...any) {
	v.Violations = append(v.Violations, fmt.Sprintf(format, args...))
}

func (v *Verdict) silence(format string, args ...any) {
	v.Silences = append(v.Silences, fmt.Sprintf(format, args...))
}

// Claim is what is held against others of a visit: that it was inside from First to Until.
type Claim struct {
	Visit
	Until   int64 // Last, or where a fault ended what was promised of it
	Segment int   // tokens rise within a segment
	Excused bool
	Cut     bool // a fault ended what was promised
}

// Claims are the visits that claim something, by name and in order.
func Claims(visits []Visit, faults []Fault) []Claim {
	var all []Claim
	for _, v := range visits {
		if v.First == 0 {
			continue
		}
		c := Claim{Visit: v, Until: v.Last}
		for _, f := range faults {
			if f.Promise == AllHolds || f.Name != NoName && f.Name != v.Name {
				continue
			}
			if f.Promise == TellsLater && v.Begun > f.From {
				c.Segment++
			}
			switch {
			case v.Begun > f.To || v.Last < f.From:
			case v.First < f.From:
				c.Until, c.Cut = min(c.Until, f.From), true
			default:
				c.Excused = true // it may have got in before or after
			}
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.First, b.First))
	})
	return all
}

// Judge judges what is in the ledger of a run.
func Judge(visits []Visit, faults []Fault, stalls []Span, r Rules) Verdict {
	var v Verdict
	for _, x := range visits {
		v.count(x)
	}
	all := Claims(visits, faults)
	for from := 0; from < len(all); {
		to := from
		for to < len(all) && all[to].Name == all[from].Name {
			to++
		}
		v.overlaps(all[from:to])
		v.told(all[from:to], faults, r)
		v.writes(all[from:to], faults)
		from = to
	}
	v.Acquisitions = len(all)
	v.waits(visits, faults, stalls, r)
	return v
}

func (v *Verdict) count(x Visit) {
	if x.Got != 0 || x.End != Open { // Lock returned
		v.Operations++
	}
	if x.End == Released || x.End == NotHeld || x.End == Unsure { // and Unlock
		v.Operations++
	}
	switch {
	case x.End == Failed:
		v.Failed++
	case x.End == NotHeld || x.Lost:
		v.Lost++
	case x.End == Open && x.Got != 0 && x.Leaving == 0:
		v.Dead++
	}
	if x.Stale != 0 || x.Refused != 0 {
		v.Stale++
	}
	if x.First > v.Latest.First {
		v.Latest = x
	}
}

// overlaps looks for more that were in at once than there is room for, and for tokens that do not
// rise, on one name. Visits of one family do not mind each other.
func (v *Verdict) overlaps(name []Claim) {
	var inside []Claim
	var fenced Claim
	for i, c := range name {
		v.Kinds[c.Shape]++
		if c.Reads() {
			v.Readers++
		}
		if i > 0 && c.Process != name[i-1].Process && !c.Shares() {
			v.Handoffs++
		}
		if c.Excused {
			v.Excused++
			continue
		}
		inside = slices.DeleteFunc(inside, func(o Claim) bool { return o.Until < c.First })
		used := c.Takes
		for _, o := range inside {
			if o.Family != c.Family {
				used += o.Takes
			}
		}
		if used > c.Room {
			v.violation("too many at once: %v, which came in beside %v", c, inside)
		}
		inside = append(inside, c)
		v.Together = max(v.Together, len(inside))
		if c.Token == 0 {
			continue
		}
		if fenced.First != 0 && fenced.Segment == c.Segment && c.Token <= fenced.Token {
			v.Regressions = append(v.Regressions, fmt.Sprintf("tokens do not rise: %v and then %v", fenced, c))
		}
		fenced = c
	}
}

// told looks for holders that believed in their lock for longer than a lease after they had lost it.
func (v *Verdict) told(name []Claim, faults []Fault, r Rules) {
	for _, c := range name {
		for _, f := range faults {
			if f.Certain && (f.Name == NoName || f.Name == c.Name) && c.First < f.From && c.Last > f.To+r.Lease {
				v.violation("not told within a lease of %q, which was over at %s: %v", f.Kind, Stamp(f.To), c)
			}
		}
	}
}

// writes looks for holders that the fenced store refused though they held the lock.
func (v *Verdict) writes(name []Claim, faults []Fault) {
	for _, c := range name {
		excused := c.Refused == 0 || c.Excused || c.Cut || c.Refused > c.Last
		for _, f := range faults {
			excused = excused || f.Promise == TellsLater && f.From < c.Last && f.To > name[0].Begun
		}
		if !excused {
			v.violation("the fenced store refused a holder at %s, which held the lock: %v", Stamp(c.Refused), c)
		}
	}
}

// waits looks for locks that were free while they were waited for.
func (v *Verdict) waits(visits []Visit, faults []Fault, stalls []Span, r Rules) {
	slices.SortFunc(visits, func(a, b Visit) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.came(), b.came()))
	})
	var frees []int64 // when earlier visits have left at the latest: the last of them, as many as there are permits
	var before int64  // when the last came in
	first := 0        // the index of the name's first visit
	for i, x := range visits {
		if visits[first].Name != x.Name {
			frees, before, first = nil, 0, i
		}
		places := 1
		if x.Shape == Permits {
			places = x.Room
		}
		if x.First != 0 && before != 0 {
			v.free = free(frees, places-r.Gone)
			v.quiet(max(v.free, x.Begun), x.First, faults, stalls, r, x.String())
			v.heal(before, visits[first:i+1], faults, stalls)
		}
		before = max(before, x.First)
		at, _ := slices.BinarySearch(frees, x.Frees(r.Lease))
		if frees = slices.Insert(frees, at, x.Frees(r.Lease)); len(frees) > places {
			frees = frees[1:]
		}
		v.free = free(frees, places-r.Gone)
	}
}

// free is since when a place is to be had, of so many, given when visits left, the last of them last.
func free(frees []int64, places int) int64 {
	if at := len(frees) - max(places, 1); at >= 0 {
		return frees[at]
	}
	return 0
}

// came is what visits of a name are in the order of.
func (v Visit) came() int64 {
	switch {
	case v.First != 0:
		return v.First
	case v.Freed != 0:
		return v.Freed
	}
	return v.Begun
}

// Frees is when a lock is free again after a visit, at the latest.
func (v Visit) Frees(lease int64) int64 {
	switch v.End {
	case Denied:
		return 0
	case Released:
		return v.Freed
	case Failed: // it may have it all the same
		return v.Freed + lease
	}
	return max(v.Begun, v.Got, v.Last, v.Freed) + lease
}

// quiet judges the time that a waiter spent beside a free lock.
func (v *Verdict) quiet(due, next int64, faults []Fault, stalls []Span, r Rules, then string) {
	for _, f := range faults {
		if over := f.over(next); f.From <= next && over+r.Lease >= due {
			due = max(due, over+r.After)
		}
	}
	if quiet := Undisturbed(due, next, stalls); quiet > r.Slack {
		v.silence("the lock was to be had from %s on, for %v, of which the machine ran %v: then came %s",
			Stamp(due), time.Duration(next-due), time.Duration(quiet), then)
	}
}

// Silence judges the time after the latest claim, on the ledger of one name that is waited for
// since begun, or 0.
func (v *Verdict) Silence(begun, until int64, faults []Fault, r Rules) {
	if v.free != 0 {
		v.quiet(max(v.free, begun), until, faults, nil, r, "none yet")
	}
}

// Heal is how long it took, after what.
type Heal struct {
	Took int64
	What string
}

// healsWithin is how long after a partition a lock that is waited for may stay free, undisturbed. In the queue of a
// fair lock, the places of a killed process take a second more, once they are first.
const healsWithin = int64(time.Second)

// heal notes how long it took the first to get in after a partition: the last of the name's visits, which come in
// order. A reader may have had to wait for the claim of a writer that did not get in. before is when the visit before
// it came in.
func (v *Verdict) heal(before int64, name []Visit, faults []Fault, stalls []Span) {
	x := name[len(name)-1]
	for _, f := range faults {
		if !f.Partition || before >= f.To || x.Begun >= f.To || x.First <= f.To || v.free >= x.First {
			continue
		}
		due := max(v.free, f.To)
		for _, g := range faults { // another that came between
			if g.From <= x.First {
				due = max(due, g.To)
			}
		}
		if due >= x.First {
			continue
		}
		what := fmt.Sprintf("%s, over at %s, the lock free at %s: %v", f.Kind, Stamp(f.To), Stamp(v.free), x)
		h := Heal{x.First - due, what}
		v.Heals = append(v.Heals, h.Took)
		if h.Took > v.Longest.Took {
			v.Longest = h
		}
		within := healsWithin
		if slices.ContainsFunc(name, Visit.deadPlace) {
			within += healsWithin
		}
		if !x.Reads() && Undisturbed(due, x.First, stalls) > within {
			v.silence("%v passed after %s, after %v", time.Duration(h.Took), h.What, name[max(len(name)-21, 0):len(name)-1])
		}
	}
}

// deadPlace reports whether the visit waited for a fair lock when its process was killed.
func (v Visit) deadPlace() bool { return v.Shape == Fair && v.End == Open && v.Got == 0 }

// Undisturbed is for how long between from and to all processes ran that wanted to.
func Undisturbed(from, to int64, stalls []Span) int64 {
	var here []Span
	for _, s := range stalls {
		if s.To > from && s.From < to {
			here = append(here, Span{max(s.From, from), min(s.To, to)})
		}
	}
	slices.SortFunc(here, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	left, at := to-from, int64(math.MinInt64)
	for _, s := range here {
		if s.To > at {
			left -= s.To - max(s.From, at)
			at = s.To
		}
	}
	return left
}
