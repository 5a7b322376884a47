package retry

import (
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
		comes []error
		sent  int
		takes time.Duration // of each attempt
		err   error
	}{
		{"it succeeds at once", []error{nil}, 1, 0, nil},
		{"it succeeds at the second attempt", []error{errPasses, nil}, 2, 0, nil},
		{"three attempts are all", []error{errPasses, errPasses, errPasses, nil}, 3, 0, errPasses},
		{"a failure that stays is not repeated", []error{errStays, nil}, 1, 0, errStays},
		{"one that takes half of the patience is not repeated", []error{errPasses, nil}, 1, 3 * time.Second, errPasses},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				err := policy(nil).Do(func() error {
					time.Sleep(c.takes)
					n++
					return c.comes[n-1]
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
	if err := policy(done).Do(func() error { n++; return errPasses }); n != 1 || err != errPasses {
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
