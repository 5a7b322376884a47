package lease

import (
	"iter"
	"time"

	"github.com/mortise-go/mortise/internal/clock"
)

// Record is the tenures that this process has in the record of one name.
type Record struct {
	Holder *Tenure // the exclusive tenure; nil if there is none
	// Readers are the readers of a read-write lock; beside a Holder, the readers that entered under it.
	Readers map[*Tenure]struct{}
	// Changes counts the messages that the record was changed from outside.
	Changes int32
}

// InUse reports whether the record has a tenure of this process.
func (r *Record) InUse() bool { return r.Holder != nil || len(r.Readers) > 0 }

// Tenures yields the holder and the readers.
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

// Admit adds a tenure that the store has granted. It returns the tenures of this process that t excludes, and why
// they are lost: the store grants t only if their record is gone. Replies may arrive out of order, so the caller
// checks which grant was the later one.
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

// Dismiss removes a tenure, and reports whether the lock may be free now.
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

// Blocks returns for how long live tenures of this process exclude a new tenure, a reader (shared) or not; 0 if none
// does.
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
