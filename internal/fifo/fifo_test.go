package fifo

import (
	"math/rand/v2"
	"testing"
)

func TestItemsLeaveInTheOrderInWhichTheyCame(t *testing.T) {
	var q Queue[int]
	next, want := 0, 0
	for range 1000 {
		for range rand.N(20) {
			q.Push(next)
			next++
		}
		for range min(rand.N(20), q.Len()) {
			if got := q.Pop(); got != want {
				t.Fatalf("got %d, want %d", got, want)
			}
			want++
		}
		if q.Len() != next-want {
			t.Fatalf("%d items, want %d", q.Len(), next-want)
		}
	}
}

func TestEachItemCostsTheSame(t *testing.T) {
	var q Queue[int]
	for i := range 500_000 {
		q.Push(i)
	}
	for q.Len() > 0 { // with a copy for each item it would take minutes
		q.Pop()
	}
}

func TestTheMemoryOfTakenItemsIsUsedAgain(t *testing.T) {
	var q Queue[int]
	q.Push(0)
	q.Push(0)
	q.Pop()
	for range 10_000 {
		q.Push(0)
		q.Push(0)
		q.Pop()
		q.Pop()
	}
	if n := cap(q.items); n > 16 {
		t.Errorf("%d slots for %d items", n, q.Len())
	}
}
