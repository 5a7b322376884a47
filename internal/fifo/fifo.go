// Package fifo is a queue whose ends cost the same however long it is.
package fifo

// Queue holds items in the order in which they came. It keeps its memory. The zero value is empty.
type Queue[T any] struct {
	items []T
	head  int // the items before it were taken
}

// Len is the number of items.
func (q *Queue[T]) Len() int { return len(q.items) - q.head }

// Push appends an item.
func (q *Queue[T]) Push(x T) {
	if len(q.items) == cap(q.items) && q.head > len(q.items)/2 { // the space of taken items is used again
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, x)
}

// Pop takes the first item; the queue must not be empty.
func (q *Queue[T]) Pop() T {
	var none T
	x := q.items[q.head]
	q.items[q.head] = none
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return x
}
