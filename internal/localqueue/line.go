package localqueue

// Ticket is a waiter's place.
type Ticket struct {
	prev, next *Ticket
	ready      chan struct{} // capacity 1: told to look again
	number     uint64
	served     bool
	left       bool
	Wish
	// Waiter is the caller's own record of the waiter.
	Waiter any
}

// Ready is what a sleeping waiter is told on.
func (t *Ticket) Ready() <-chan struct{} {
	if t.ready == nil {
		t.ready = make(chan struct{}, 1)
	}
	return t.ready
}

// Slept reports whether the waiter sleeps, or has.
func (t *Ticket) Slept() bool { return t.ready != nil }

// Joined reports whether the ticket was in a queue before.
func (t *Ticket) Joined() bool { return t.number != 0 }

// Served reports whether another's question was answered for this waiter too.
func (t *Ticket) Served() bool { return t.served }

// Left reports whether the waiter does not wait any more.
func (t *Ticket) Left() bool { return t.left }

// Serve tells the waiter that what it waits for is so.
func (t *Ticket) Serve() {
	t.served = true
	t.tell()
}

// Hand has the waiter, which was handed what it waits for, look.
func (t *Ticket) Hand() { t.tell() }

func (t *Ticket) tell() {
	select {
	case t.ready <- struct{}{}:
	default: // it was told, or does not sleep
	}
}

// line is the tickets in the order in which they came. Its first changes when that one leaves, and when another is
// advanced, which happens only once the first was answered: what the queue knows of an ask is about its first.
type line struct {
	first, last *Ticket
	length      int
	joined      uint64 // numbers the tickets
}

// Joined is the number of the last ticket.
func (l *line) Joined() uint64 { return l.joined }

func (l *line) join(t *Ticket) {
	l.joined++
	l.length++
	t.number = l.joined
	l.insert(t, l.last)
}

func (l *line) leave(t *Ticket) {
	l.length--
	t.left = true
	l.remove(t)
}

// insert puts t behind another; nil: before all.
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
