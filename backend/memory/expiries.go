package memory

import (
	"container/heap"
	"time"

	"github.com/mortise-go/mortise/backend/record"
)

// expiries is a heap of names; the next one to be looked at is the first.
type expiries []*stored

func (e expiries) Len() int           { return len(e) }
func (e expiries) Less(i, j int) bool { return e[i].deadline < e[j].deadline }

func (e expiries) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}

func (e *expiries) Push(x any) {
	r := x.(*stored)
	r.index = len(*e)
	*e = append(*e, r)
}

func (e *expiries) Pop() any {
	last := len(*e) - 1
	r := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	r.index = -1
	return r
}

// expireAt has a name looked at when it ends; not at all if it is gone, or end is 0.
func (s *Store) expireAt(r *stored, gone bool, end record.Time) {
	switch in := r.index >= 0; {
	case gone || end == 0:
		if !in {
			return
		}
		heap.Remove(&s.expiries, r.index)
	case !in:
		r.deadline = end
		heap.Push(&s.expiries, r)
	case r.deadline == end:
		return
	default:
		r.deadline = end
		heap.Fix(&s.expiries, r.index)
	}
	s.arm()
}

// arm sets the timer for the next expiry. A timer that is set too early stays: renewals and releases, which put the
// next expiry off, then set no timer.
func (s *Store) arm() {
	switch {
	case len(s.expiries) == 0:
		if s.timer != nil {
			s.timer.Stop()
			s.timer = nil
		}
		return
	case s.timer != nil && s.timerFor <= s.expiries[0].deadline:
		return
	case s.timer != nil:
		s.timer.Stop()
	}
	s.timerFor = s.expiries[0].deadline
	s.timer = time.AfterFunc(s.timerFor-s.now(), s.expire)
}

// expire ends what is over. The timer calls expire, perhaps late, or once too often after arm has replaced
// the timer. Neither matters: expire compares the deadlines with the clock.
func (s *Store) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireNow()
}

func (s *Store) expireNow() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if s.down != nil {
		return // SetDown(nil) expires what has ended
	}
	for now := s.now(); len(s.expiries) > 0 && now >= s.expiries[0].deadline; {
		s.run(s.expiries[0].name, func(*record.Name, *record.Step) {})
	}
	s.arm()
}
