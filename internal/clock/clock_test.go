package clock

import (
	"testing"
	"time"
)

func TestAnInstantIsReachedByEitherClock(t *testing.T) {
	at := Instant{Mono: 100, Wall: 1000}
	for _, c := range []struct {
		what    string
		now     Instant
		reached bool
		left    time.Duration
	}{
		{"before on both", Instant{40, 990}, false, 10},
		{"the monotonic clock is past", Instant{100, 0}, true, 0},
		{"the wall clock is past: the machine slept", Instant{0, 1000}, true, 0},
		{"the wall clock was set back", Instant{99, -5000}, false, 1},
	} {
		if got := at.Reached(c.now); got != c.reached {
			t.Errorf("%s: reached is %v", c.what, got)
		}
		if got := at.Until(c.now); got != c.left {
			t.Errorf("%s: %v is left, want %v", c.what, got, c.left)
		}
	}
}

func TestAHoldersLeaseEndsBeforeTheStores(t *testing.T) {
	for _, lease := range []time.Duration{50 * time.Millisecond, time.Second, 30 * time.Second, 365 * 24 * time.Hour} {
		sent := Instant{Mono: 7, Wall: 70}
		end := Deadline(sent, lease)
		if left := lease - end.Sub(sent); left < 10*time.Millisecond || left < lease/100 {
			t.Errorf("a lease of %v ends %v before the store's", lease, left)
		}
	}
	for _, d := range []time.Duration{1, time.Millisecond, 50 * time.Millisecond, time.Minute, 24 * time.Hour} {
		lease := Outlasting(d)
		if end := lease - Margin(lease); end < d {
			t.Errorf("a lease that is to outlast %v ends after %v", d, end)
		}
		if lease%time.Millisecond != 0 {
			t.Errorf("%v is not whole milliseconds", lease)
		}
	}
}

func TestLaterIsTheLaterOfTwo(t *testing.T) {
	for now, want := range map[Instant]Instant{
		{0, 0}:  {5, 5},
		{1, 4}:  {3, 8}, // the machine slept: on the wall clock, the other comes first
		{1, -9}: {5, 5}, // the wall clock was set back
	} {
		a, b := Instant{5, 5}, Instant{3, 8}
		if Later(a, b, now) != want || Later(b, a, now) != want {
			t.Errorf("at %v the later is %v, want %v", now, Later(a, b, now), want)
		}
	}
}
