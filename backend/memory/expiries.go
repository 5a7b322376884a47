package memory

import (
	"container/heap"
	"time"
)

// expiries is a heap of stored data; the next one to expire is the first.
type expiries []*stored

func (e expiries) Len() int           { return len(e) }
func (e expiries) Less(i, j int) bool { return e[i].deadline.Before(e[j].deadline) }

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

// put stores r, which expires at a deadline.
func (s *Store) put(r *stored, deadline time.Time) {
	r.deadline = deadline
	s.records[r.name] = r
	heap.Push(&s.expiries, r)
	s.arm()
}

// end sets the deadline of r.
func (s *Store) end(r *stored, deadline time.Time) {
	r.deadline = deadline
	heap.Fix(&s.expiries, r.index)
	s.arm()
}

func (s *Store) remove(r *stored) {
	delete(s.records, r.name)
	if r.index >= 0 {
		heap.Remove(&s.expiries, r.index)
		s.arm()
	}
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
	case s.timer != nil && !s.timerFor.After(s.expiries[0].deadline):
		return
	case s.timer != nil:
		s.timer.Stop()
	}
	s.timerFor = s.expiries[0].deadline
	s.timer = time.AfterFunc(time.Until(s.timerFor), s.expire)
}

// expire removes the expired records. The timer calls expire, perhaps late, or once too often after arm has replaced
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
	for now := time.Now(); len(s.expiries) > 0 && !now.Before(s.expiries[0].deadline); {
		s.pass(s.expiries[0])
	}
	s.arm()
}
