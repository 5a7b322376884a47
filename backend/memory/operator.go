package memory

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// operator implements [backend.OperatorStore].
type operator struct{ *client }

// Describe implements [backend.OperatorStore].
func (x operator) Describe(ctx context.Context, q backend.DescribeRequest) (backend.Description, error) {
	return locked(ctx, x.client, func(s *Store) (backend.Description, error) {
		r := s.find(q.Name)
		if r != nil && !described(r) {
			return backend.Description{}, wrongKind(r)
		}
		return s.describe(q.Name, q.Entries), nil
	})
}

// described reports whether a record is one that Describe reads.
func described(r *stored) bool {
	switch r.state.(type) {
	case *record.Lock, *record.Sides, *record.Permits:
		return true
	}
	return false
}

// describe describes the kind of which there is a record. The entries of other kinds wait for the same name.
func (s *Store) describe(name string, entries int) (d backend.Description) {
	clock := func(t record.Time) time.Time { return s.epoch.Add(t) }
	add := func(of backend.Description) {
		if of.Exists {
			d.Record, d.Exists, d.Token, d.Since = of.Record, true, of.Token, of.Since
		}
		d.Waiting += of.Waiting
		d.Queue = append(d.Queue, of.Queue[:min(len(of.Queue), entries-len(d.Queue))]...)
	}
	if s.locks[name] != nil {
		step(s, nil, s.locks, name, func(l *record.Lock, st *record.Step) { add(l.Describe(st, entries, clock)) })
	}
	if s.sides[name] != nil {
		step(s, nil, s.sides, name, func(l *record.Sides, st *record.Step) { add(l.Describe(st, entries, clock)) })
	}
	if s.permits[name] != nil {
		step(s, nil, s.permits, name, func(p *record.Permits, st *record.Step) { add(p.Describe(st, entries, clock)) })
	}
	return d
}

// listed is how many locks a page has.
const listed = 1000

// List implements [backend.ListStore], in the order of names. A cursor is a name.
func (x operator) List(ctx context.Context, q backend.ListRequest) (backend.ListPage, error) {
	return locked(ctx, x.client, func(s *Store) (page backend.ListPage, err error) {
		var names []string
		for name, r := range s.records {
			if name > q.Cursor && strings.HasPrefix(name, q.Prefix) && described(r) {
				if names = append(names, name); len(names) == 2*listed {
					names = first(names)
				}
			}
		}
		if names = first(names); len(names) == listed {
			page.Next = names[listed-1]
		}
		for _, name := range names {
			if d := s.describe(name, 0); d.Exists && d.Kind != backend.KindCountingSemaphore {
				page.Locks = append(page.Locks, backend.Listed{Name: name, Description: d})
			}
		}
		return page, nil
	})
}

// first returns the first names of a page.
func first(names []string) []string {
	slices.Sort(names)
	return names[:min(len(names), listed)]
}
