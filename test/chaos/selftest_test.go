//go:build linux

package chaos

import (
	"testing"
	"time"

	"github.com/mortise-go/mortise/test/internal/harness"
)

// Each broken lock must be caught, by what is wrong with it, in the same harness; and the
// one that is made in the same way, but right, must not be.

type symptom int

const (
	twoHolders symptom = iota
	badTokens
	stuck
)

var brokenLocks = []struct {
	lock   string
	shows  symptom
	faults []string // that bring it out, if there must be any
}{
	{lock: endlessBelief, shows: twoHolders, faults: []string{"holder stopped past its lease"}},
	{lock: deletesAnybodys, shows: twoHolders},
	{lock: checksThenDeletes, shows: twoHolders},
	{lock: renewsTheLost, shows: twoHolders, faults: []string{"holder stopped past its lease"}},
	{lock: repeatsTokens, shows: badTokens},
	{lock: setsWithoutNX, shows: twoHolders},
	{lock: localOnly, shows: twoHolders},
	{lock: wakesWithoutTry, shows: twoHolders},
	{lock: neverExpires, shows: stuck, faults: []string{"holder killed"}},
	{lock: renewsAfterUnlock, shows: stuck},
	{lock: waitsForTheDead, shows: stuck, faults: []string{"waiter killed"}},
	{lock: readsBeside, shows: twoHolders},
	{lock: writesBeside, shows: twoHolders},
	{lock: onePermitToo, shows: twoHolders},
	{lock: givesTwice, shows: twoHolders},
}

// handmadeCrew has four processes fight for a lock that is not mortise's, or not all of it.
func handmadeCrew(t *testing.T, lock string) *crew {
	config := usual()
	config.Lock = lock
	c := newCrew(t, standalone, config, 1)
	for side := range 2 {
		c.start(harness.GoRedis, side)
		c.start(harness.GoRedis, side)
	}
	return c
}

// caught runs a broken lock until it shows its symptom, at most for a while.
func caught(t *testing.T, lock string, shows symptom, faults []string) {
	c := handmadeCrew(t, lock)
	began := harness.Now()
	var v harness.Verdict
	sick := func() bool {
		v = c.verdict()
		switch shows {
		case badTokens:
			return len(v.Regressions) > 0
		case stuck:
			return c.stuck()
		}
		return len(v.Violations) > 0
	}
	found := false
	for end := time.Now().Add(patience); !found && time.Now().Before(end); {
		for _, name := range faults {
			c.strike(name)
		}
		found = harness.Awaits(10*time.Second, sick)
	}
	t.Logf("after %v: %v\n%s", time.Duration(harness.Now()-began).Round(time.Millisecond), v, v.Why())
	harness.ErrorIf(t, !found, "not caught within %v: %s", patience, lock)
	if shows == stuck {
		return
	}
	// porcupine agrees.
	before := len(v.Violations)
	linearize(&v, c.Book.All(), c.Faults)
	harness.ErrorIf(t, len(v.Violations) == before, "porcupine took its history for a lock's")
}

func TestSelftest(t *testing.T) {
	if !*runChaos {
		t.Skip("it takes a minute or two: make chaos-selftest")
	}
	for _, b := range brokenLocks {
		t.Run(b.lock, func(t *testing.T) { caught(t, b.lock, b.shows, b.faults) })
	}
}

// One of them is part of `make verify`.
func TestSmokeOfTheSelftest(t *testing.T) { caught(t, deletesAnybodys, twoHolders, nil) }

func TestSelftestPassesALockThatIsRight(t *testing.T) {
	if !*runChaos {
		t.Skip("make chaos-selftest")
	}
	c := handmadeCrew(t, rightLock)
	c.progress("the start")
	for _, name := range []string{"holder stopped past its lease", "holder killed", "connections cut"} {
		if c.strike(name) {
			c.progress(name)
		}
	}
	c.finish()
	v := c.verdict()
	linearize(&v, c.Book.All(), c.Faults)
	t.Log(v)
	if v.Bad() || c.stuck() {
		t.Errorf("a lock that is right was taken for a broken one:\n%s", v.Why())
	}
	harness.ErrorIf(t, len(c.Faults) != 3, "%d faults of 3", len(c.Faults))
}
