package record

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// clock returns what a time is by the store's clock; zero for zero.
func (s *Step) clock(t Time) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMilli(cmp.Or(s.Day, s.Wall)).Add(t - s.Now).Round(time.Millisecond) // without the mark of Moment
}

// Describe is [backend.OperatorStore].Describe. Entries of other kinds may wait for the name, too.
func (n *Name) Describe(s *Step, entries int) (d backend.Description) {
	for _, of := range []backend.Description{
		n.Lock.Describe(n.For(s, LockData), entries), n.Sides.Describe(n.For(s, SidesData), entries),
		n.Permits.Describe(n.For(s, CountData), entries),
	} {
		if of.Exists {
			d.Record, d.Exists, d.Token, d.Since = of.Record, true, of.Token, of.Since
		}
		d.Waiting += of.Waiting
		d.Queue = append(d.Queue, of.Queue[:min(len(of.Queue), entries-len(d.Queue))]...)
	}
	return d
}

// Listed returns what a listing of a store says of a name; not is if it has no lock.
func (n *Name) Listed(s *Step) (x backend.Listed, is bool) {
	d := n.Describe(s, 0)
	return backend.Listed{Name: s.Name, Description: d}, d.Exists && d.Kind != backend.KindCountingSemaphore
}

// Describe is [backend.OperatorStore].Describe for a lock.
func (l *Lock) Describe(s *Step, entries int) backend.Description {
	d := backend.Description{Record: l.Inspect(s), Exists: !l.Free(), Waiting: len(l.Queue) + len(l.Places)}
	if len(l.Owners) > 0 {
		d.Since = s.clock(l.Owners[0].Since)
	}
	for _, o := range l.Owners {
		d.Token = max(d.Token, o.Token)
	}
	for _, e := range l.Queue[:min(entries, len(l.Queue))] {
		d.Queue = append(d.Queue, backend.Waiter{Owner: e.Owner, Session: e.Session.String(), Since: s.clock(e.Came)})
	}
	for _, p := range l.Places[:min(entries-len(d.Queue), len(l.Places))] {
		d.Queue = append(d.Queue, backend.Waiter{Kind: backend.KindFair, Owner: p.Owner})
	}
	return d
}

// Describe is [backend.OperatorStore].Describe for a read-write lock.
func (l *Sides) Describe(s *Step, entries int) backend.Description {
	d := backend.Description{Record: l.Inspect(s)}
	d.Exists = d.Held
	d.Waiting, d.Queue = l.Line.describe(s, entries)
	switch {
	case d.Kind == backend.KindWrite:
		d.Since = s.clock(l.Writer.Since)
	case d.Held:
		d.Since = s.clock(l.Readers[d.Owner].Since)
	}
	return d
}

// Describe is [backend.OperatorStore].Describe for a count.
func (p *Permits) Describe(s *Step, entries int) (d backend.Description) {
	d.Waiting, d.Queue = p.Line.describe(s, entries)
	if d.Exists = p.Counts; !d.Exists {
		return d
	}
	live := maps.Clone(p.Out)
	maps.DeleteFunc(live, func(_ string, ends Time) bool { return ends <= s.Now })
	if len(live) == 0 {
		d.Record = backend.Record{Kind: backend.KindCountingSemaphore, Holds: int(p.N)}
		return d
	}
	last := slices.MaxFunc(slices.Collect(maps.Keys(live)), func(a, b string) int {
		return cmp.Or(cmp.Compare(live[a], live[b]), cmp.Compare(a, b))
	})
	d.Record = backend.Record{
		Held: true, Kind: backend.KindSemaphore, Owner: last, Holds: len(live), Remaining: s.Left(live[last]),
	}
	return d
}

// describe returns how many entries the line has, and the first of them.
func (l Line) describe(s *Step, entries int) (int, []backend.Waiter) {
	var all []backend.Waiter
	for _, w := range l[:min(entries, len(l))] {
		all = append(all, backend.Waiter{
			Kind: w.Kind, Owner: w.Owner, Session: w.Session.String(), Since: s.clock(w.Came),
		})
	}
	return len(l), all
}

// String returns the session's name.
func (x Session) String() string { return strconv.FormatUint(uint64(x), 10) }
