package backendtest

import (
	"time"

	"github.com/mortise-go/mortise"
)

// tokenTests are about fencing tokens.
var tokenTests = []test{
	{"Rule01_FencedAndPlainLocksOfOneNameExcludeEachOther", func(e *env) {
		c := e.client()
		fenced := e.client().With(mortise.Fenced())
		plain := e.lock(c, background, "n", mortise.WithLease(long))
		e.is("fenced over plain", second(fenced.TryLock(background, "n")), mortise.ErrNotAcquired)
		token := plain.Token()
		e.errorIf(token != 0, "a plain lease has the token %d", token)
		e.unlock(plain)
		f := e.lock(fenced, background, "n", mortise.WithLease(long))
		e.is("plain over fenced", second(c.TryLock(background, "n")), mortise.ErrNotAcquired)
		e.unlock(f)
	}},
	{"Rule01_FencingTokensRiseAcrossOwnersClientsAndAFlush", func(e *env) {
		var last int64
		var lockers []mortise.Locker
		for range 2 {
			l := e.client().With(mortise.Fenced())
			lockers = append(lockers, l)
		}
		for i := range 12 {
			lease := e.lock(lockers[i%2], background, "n", mortise.WithLease(long))
			token := lease.Token()
			e.fatalIf(token <= last, "token %d after %d", token, last)
			inner := e.lock(lockers[i%2], lease.Context(), "n")
			if again := inner.Token(); again != token {
				e.Errorf("a re-entry has the token %d, want that of its owner, %d", again, token)
			}
			e.unlock(inner, lease)
			last = token
			if i%4 == 3 {
				// A counter that is gone starts at the clock in milliseconds.
				e.until("the clock is past the last token", func() bool { return time.Now().UnixMilli() > last })
				e.store.Flush()
			}
		}
	}},
}
