package cas

import (
	"time"

	"github.com/mortise-go/mortise/backend/record"
)

// A store without a clock has a time for each key, which its writers carry on. A writer adds to the stamp of the
// version that it replaces what has passed since that version was sent, and never more: the driver knows a lower
// bound, from when the version was first seen or better. The writer's monotonic clock goes on from there. The sum
// is the new version's stamp.
//
// So from the sending of one version to that of any later one the key's time never advances by more than has
// passed. A lease is counted from its version's stamp, a holder counts it from before it sent the version, and a
// swap succeeds only on the version whose time it goes by: no lease ends for others before its holder knows that
// it is over. The key's time falls behind where writers change: by the time from sending to seeing a version, each
// time. Leases of dead clients then last longer.
//
// A time of the key is not one of the day. Where a time of the day is asked for, the client's own clock tells it.

// keyTime is a time of a key, and when that was by this process's clock.
type keyTime struct {
	time time.Duration
	when time.Time
	// day is what the clock of the day is ahead of the key's time, in milliseconds.
	day int64
}

// steady is by how many milliseconds the key's time may fall behind before the difference to the clock of the day is
// taken anew: until then the key's times are the same times of the day.
const steady = 2000

// wall returns the time of the day at the key's time.
func (t *keyTime) wall(day, now int64) int64 {
	if d := day - now - t.day; d < -steady || d > steady {
		t.day = day - now
	}
	return now + t.day
}

// at returns the key's time; false if it was never read.
func (t keyTime) at(now time.Time) (time.Duration, bool) {
	return t.time + now.Sub(t.when), !t.when.IsZero()
}

// now returns what the store's time for a key has reached at least; false if it was not read yet.
func (x *session) now(k *key) (time.Duration, bool) {
	switch now, known := x.clock.now(); {
	case x.limits.NoClock:
		return k.time.at(time.Now())
	case k.cur.Version != None:
		return x.clock.nowFor(k.cur.Stamp, k.seen), known
	default:
		return now, known
	}
}

// note notes a reading of the store's clock, if it has one.
func (x *session) note(r reading) {
	if !x.limits.NoClock {
		x.clock.note(r)
	}
}

// step returns the step of a name's calls; k is the name's key, or nil if no call changes the name.
func (x *session) step(n *record.Name, name string, k *key, now record.Time) *record.Step {
	s := n.StepOf(name, x.id, now)
	if x.limits.NoClock {
		s.Wall = time.Now().UnixMilli()
		if k != nil {
			s.Day = k.time.wall(s.Wall, now.Milliseconds())
			first := k.cur.Version * NoClockStep.Milliseconds()
			if k.cur.Version == None {
				first = k.cur.Now.Milliseconds()
			}
			s.World = tokens{s.World, n, first}
		}
	}
	return s
}

// tokens is a World whose first token of a name is given: the store's versions rise over the removal of a name, and its
// time does not.
type tokens struct {
	record.World
	n     *record.Name
	first int64
}

// Draw implements [record.World].
func (w tokens) Draw(name string) int64 {
	if w.n.Token == 0 {
		w.n.Token = max(w.first, 2) - 1
	}
	return w.World.Draw(name)
}

// decode decodes a value. Leases are whole milliseconds, and begin at one: within the margin by which their holders end
// them before, as with a clock that tells milliseconds.
func decode(v *Swapped) (*record.Name, error) {
	return record.Decode(v.Value, v.Stamp.Truncate(time.Millisecond))
}
