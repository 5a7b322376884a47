package timed

import (
	"testing"
	"testing/synctest"
	"time"
)

// noting notes errors instead of failing.
type noting struct {
	testing.TB
	failed bool
}

func (n *noting) Helper()               {}
func (n *noting) Errorf(string, ...any) { n.failed = true }

func TestABoundIsExtendedByTheDelaysOfTheMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, began := Test(t), time.Now()
		time.Sleep(10 * time.Second)
		if late := m.Late(began); late != 0 {
			t.Errorf("a machine that is never late was late by %v", late)
		}
		at := func(d time.Duration) time.Time { return began.Add(d) }
		m.note(span{at(1 * time.Second), at(3 * time.Second)})
		m.note(span{at(7 * time.Second), at(8 * time.Second)})
		for _, tt := range []struct {
			took, bound time.Duration
			fails       bool
		}{
			{10 * time.Second, 4 * time.Second, false}, // late by 3 s
			{10*time.Second + 1, 4 * time.Second, true},
			{8 * time.Second, 4 * time.Second, false}, // by 2 s: the first span had begun
			{6 * time.Second, 4 * time.Second, false}, // by 1 s
			{6*time.Second + 1, 4 * time.Second, true},
			{time.Second, time.Second - 1, true}, // by nothing
		} {
			n := &noting{TB: t}
			if m.Within(n, "it", tt.took, tt.bound); n.failed != tt.fails {
				t.Errorf("%v within %v: failed %v, want %v", tt.took, tt.bound, n.failed, tt.fails)
			}
		}
	})
}
