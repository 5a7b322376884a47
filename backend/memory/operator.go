package memory

import (
	"context"
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
