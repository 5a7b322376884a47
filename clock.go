package mortise

import "time"

// instant is a point in time on both clocks. A lease is over as soon as either
// says so: the monotonic clock stands still while a machine sleeps, and the wall
// clock may be set back.
type instant struct {
	mono int64 // ns since the client's epoch
	wall int64 // ns since 1970
}

// clock reads instants.
type clock struct{ epoch time.Time }

func (k clock) now() instant {
	t := time.Now()
	return instant{mono: int64(t.Sub(k.epoch)), wall: t.UnixNano()}
}

func (i instant) add(d time.Duration) instant {
	return instant{mono: i.mono + int64(d), wall: i.wall + int64(d)}
}

// reached tells whether now is at or past i.
func (i instant) reached(now instant) bool {
	return now.mono >= i.mono || now.wall >= i.wall
}

// until is what is left at now, by the clock on which less is left.
func (i instant) until(now instant) time.Duration {
	return time.Duration(min(i.mono-now.mono, i.wall-now.wall))
}

// later returns the later of two deadlines. Both clocks run alike between the
// calls that made them, so comparing one is enough.
func later(a, b instant) instant {
	if a.mono >= b.mono {
		return a
	}
	return b
}

// margin is how much before the store a holder considers its lease over, for
// clocks that run at slightly different rates.
func margin(lease time.Duration) time.Duration {
	return max(10*time.Millisecond, lease/100)
}

// outlasting is the lease whose holder's end, margin deducted, is d away.
func outlasting(d time.Duration) time.Duration {
	return ceilMilli(max(d+10*time.Millisecond, d*100/99+1))
}

// deadlineOf is the holder's end of a lease that was asked for at sent.
func deadlineOf(sent instant, lease time.Duration) instant {
	return sent.add(lease - margin(lease))
}

// never is a time that does not come.
const never = int64(1<<63 - 1)
