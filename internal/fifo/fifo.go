// Package fifo has a queue with operations of constant cost, on average, at any length.
package fifo

// Queue holds items, oldest first. Its memory never shrinks. The zero value is an empty queue.
type Queue[T any] struct {
	items []T
	head  int // the index of the first item; the items before it were taken
}

// Len returns the number of items.
func (q *Queue[T]) Len() int { return len(q.items) - q.head }

// Push appends an item.
func (q *Queue[T]) Push(x T) {
	if len(q.items) == cap(q.items) && q.head > len(q.items)/2 { // reuse the space of taken items
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, x)
}

// Pop removes and returns the first item. The queue must not be empty.
func (q *Queue[T]) Pop() T {
	var none T
	x := q.items[q.head]
	q.items[q.head] = none
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return x
}
