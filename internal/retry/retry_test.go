package retry

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var errPasses, errStays = errors.New("passes"), errors.New("stays")

func policy(done chan struct{}) Policy {
	return Policy{Temporary: func(err error) bool { return errors.Is(err, errPasses) }, Done: done}
}

func TestACommandIsRepeatedWhileItsFailureMayPass(t *testing.T) {
	for _, c := range []struct {
		what  string
		comes []error       // the outcomes of the attempts; the last one repeats
		takes time.Duration // of each attempt
		wait  time.Duration // of the caller; 0: endless
		sent  int
		err   error
	}{
		{"it succeeds at once", []error{nil}, 0, 0, 1, nil},
		{"it succeeds at the second attempt", []error{errPasses, nil}, 0, 0, 2, nil},
		{"three failures at once are all", []error{errPasses}, 0, 0, 3, errPasses},
		{"a failure that stays is not repeated", []error{errStays}, 0, 0, 1, errStays},
		{"a time-out is repeated, however long it took", []error{errPasses}, time.Minute, 0, 2, errPasses},
		{"go-redis' time-out", []error{errPasses}, 3 * time.Second, 0, 4, errPasses},
		{"rueidis' time-out", []error{errPasses}, 5 * time.Second, 0, 2, errPasses},
		{"a time-out of a second", []error{errPasses}, time.Second, 0, 10, errPasses},
		{"the caller's wait ends first", []error{errPasses}, 3 * time.Second, 5 * time.Second, 2, errPasses},
		{"the caller's wait has ended", []error{errPasses}, 3 * time.Second, 2 * time.Second, 1, errPasses},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.wait > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.wait)
					defer cancel()
				}
				n := 0
				err := policy(nil).Do(ctx, func() error {
					time.Sleep(c.takes)
					n++
					return c.comes[min(n, len(c.comes))-1]
				})
				if n != c.sent || err != c.err {
					t.Errorf("sent %d times and came to %v, want %d and %v", n, err, c.sent, c.err)
				}
			})
		})
	}
}

func TestAPauseEndsWithTheClient(t *testing.T) {
	done := make(chan struct{})
	close(done)
	n := 0
	if err := policy(done).Do(t.Context(), func() error { n++; return errPasses }); n != 1 || err != errPasses {
		t.Errorf("sent %d times, %v", n, err)
	}
}

func TestPausesDoubleUpToABound(t *testing.T) {
	b := Backoff{Every: 50 * time.Millisecond, Most: time.Second}
	var got []time.Duration
	for range 7 {
		got = append(got, b.Next()/time.Millisecond)
	}
	if want := []time.Duration{50, 100, 200, 400, 800, 1000, 1000}; !slices.Equal(got, want) {
		t.Errorf("pauses of %v ms, want %v", got, want)
	}
	if b.Slow(10 * time.Minute); b.Most != 30*time.Second {
		t.Errorf("pauses grow to %v, want a twentieth of ten minutes", b.Most)
	}
	if b.Slow(time.Second); b.Most != 30*time.Second {
		t.Errorf("pauses grow to %v, less than before", b.Most)
	}
	if d := After(3, 25*time.Millisecond, time.Second); d != 200*time.Millisecond {
		t.Errorf("%v after the third failure", d)
	}
}
