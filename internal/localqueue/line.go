package localqueue

// Ticket is a waiter's entry in a Queue.
type Ticket struct {
	prev, next *Ticket
	ready      chan struct{} // wakes the waiter; capacity 1, nil until the waiter first sleeps
	number     uint64        // from 1, rising; 0 before Join
	served     bool
	left       bool
	Declares   bool // the waiter's requests set the limit of a semaphore that has none
	// Depth orders waiters: one of a greater depth goes before those of smaller depths, except that the first waiter is
	// overtaken only after the answer to its request.
	Depth int32
	Wish
	// Waiter is the caller's own record of the waiter.
	Waiter any
}

// Ready returns the channel that wakes the sleeping waiter. The waiter then calls Queue.Next.
func (t *Ticket) Ready() <-chan struct{} {
	if t.ready == nil {
		t.ready = make(chan struct{}, 1)
	}
	return t.ready
}

// Slept reports whether the waiter sleeps, or has slept.
func (t *Ticket) Slept() bool { return t.ready != nil }

// Joined reports whether the ticket is, or was, in a queue.
func (t *Ticket) Joined() bool { return t.number != 0 }

// JoinedBy reports whether the ticket is the one with a number, or joined before it: Joined.
func (t *Ticket) JoinedBy(number uint64) bool { return t.number <= number }

// Served reports whether the waiter has what it waits for by another waiter's request.
func (t *Ticket) Served() bool { return t.served }

// Left reports whether the waiter has left the queue.
func (t *Ticket) Left() bool { return t.left }

// Serve marks the waiter as served by another waiter's request, and wakes it.
func (t *Ticket) Serve() {
	t.served = true
	t.tell()
}

// Hand wakes a waiter that the caller has handed a record to.
func (t *Ticket) Hand() { t.tell() }

func (t *Ticket) tell() {
	select {
	case t.ready <- struct{}{}:
	default: // the waiter was woken already, or does not sleep
	}
}

// line is a list of tickets, oldest first. The first ticket changes only when it leaves or when Queue.Advance puts
// another before it; Advance comes only after the answer to the first. So what the queue notes about the last request
// is about the first ticket's request.
type line struct {
	first, last *Ticket
	length      int
	joined      uint64 // the number of the newest ticket
}

// Joined returns the number of the newest ticket.
func (l *line) Joined() uint64 { return l.joined }

// All yields the tickets, first to last.
func (l *line) All(yield func(*Ticket) bool) {
	for t := l.first; t != nil && yield(t); t = t.next {
	}
}

func (l *line) join(t *Ticket) {
	l.joined++
	l.length++
	t.number = l.joined
	behind := l.last
	for behind != l.first && behind.Depth < t.Depth {
		behind = behind.prev
	}
	l.insert(t, behind)
}

func (l *line) leave(t *Ticket) {
	l.length--
	t.left = true
	l.remove(t)
}

// insert puts t behind another ticket; before all tickets if behind is nil.
func (l *line) insert(t, behind *Ticket) {
	if t.prev = behind; behind != nil {
		t.next, behind.next = behind.next, t
	} else {
		t.next, l.first = l.first, t
	}
	if t.next != nil {
		t.next.prev = t
	} else {
		l.last = t
	}
}

func (l *line) remove(t *Ticket) {
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		l.first = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	} else {
		l.last = t.prev
	}
	t.prev, t.next = nil, nil
}
