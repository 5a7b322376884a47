package mortise

// fifo is a queue whose ends cost the same however long it is. It keeps its memory.
type fifo[T any] struct {
	items []T
	head  int // the items before it were taken
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

func (q *fifo[T]) push(x T) {
	if len(q.items) == cap(q.items) && q.head > len(q.items)/2 { // what was taken makes room
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, x)
}

// pop takes the first item, which there is.
func (q *fifo[T]) pop() T {
	var none T
	x := q.items[q.head]
	q.items[q.head] = none
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return x
}
