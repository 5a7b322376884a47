package lease

import (
	"iter"
	"time"

	"github.com/mortise-go/mortise/internal/clock"
)

// Record is what this process holds of one name.
type Record struct {
	Holder *Tenure // exclusive
	// Readers are those of a read-write lock; beside a holder, those that it let in.
	Readers map[*Tenure]struct{}
	// Changes counts how often the record was changed by others, as far as was told.
	Changes int32
}

// InUse reports whether a tenure of this process is in the record.
func (r *Record) InUse() bool { return r.Holder != nil || len(r.Readers) > 0 }

// Tenures are all of them.
func (r *Record) Tenures() iter.Seq[*Tenure] {
	return func(yield func(*Tenure) bool) {
		if r.Holder != nil && !yield(r.Holder) {
			return
		}
		for t := range r.Readers {
			if !yield(t) {
				return
			}
		}
	}
}

// Admit notes a new tenure. What the store granted shows that those in its way here have lost the lock: it returns
// them, and why.
func (r *Record) Admit(t *Tenure) (lost []*Tenure, why string) {
	if t.Mode == Shared {
		if w := r.Holder; w != nil && w.Order != t.Order {
			lost, why = []*Tenure{w}, "a reader has acquired it: its record was removed"
		}
		if r.Readers == nil {
			r.Readers = make(map[*Tenure]struct{})
		}
		r.Readers[t] = struct{}{}
		return lost, why
	}
	if r.Holder != nil {
		lost, why = []*Tenure{r.Holder}, "another owner has acquired it: its record was removed"
	}
	for reader := range r.Readers {
		lost, why = append(lost, reader), "a writer has acquired it: its record was removed"
	}
	r.Holder = t
	return lost, why
}

// Dismiss takes a tenure out, and reports whether the lock may be free now.
func (r *Record) Dismiss(t *Tenure) bool {
	if r.Holder == t {
		r.Holder = nil
		return true
	}
	if _, reads := r.Readers[t]; reads {
		delete(r.Readers, t)
		return len(r.Readers) == 0
	}
	return false
}

// Blocks is for how long a tenure of this process stands in the way of a new one, to read or not; 0 if none does.
func (r *Record) Blocks(shared bool, now clock.Instant) (left time.Duration) {
	if t := r.Holder; t != nil && t.State == Live {
		left = t.Deadline.Until(now)
	}
	if !shared {
		for t := range r.Readers {
			if t.State == Live {
				left = max(left, t.Deadline.Until(now))
			}
		}
	}
	return max(left, 0)
}
