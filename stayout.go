package mortise

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mortise-go/mortise/backend"
)

// WithStayOut sets for how long a store that lost its data, or may have, has no vote in
// [Red]: after it was emptied or restarted, or when it is new. d must be no shorter than
// the longest lease that anybody takes on the store, Redisson's RedLock included; all clients
// of a store should agree. The default is the watchdog timeout, which is right as long as [WithLease] is
// not longer.
//
// Zero lets it vote at once: only for stores that stay down for that time
// when they were restarted, and that are never emptied.
func WithStayOut(d time.Duration) ClientOption {
	return func(c *Client) error {
		if d < 0 || d > MaxLease {
			return fmt.Errorf("%w: WithStayOut(%v): between 0 and %v", ErrInvalid, d, MaxLease)
		}
		c.stayOut = ceilMilli(d)
		return nil
	}
}

// WithStayOutScope gives this client a record of its own of since when its store has its data: the record on which
// the rule of [WithStayOut] rests. All clients of a store that lock the same names with [Red] should name the same scope.
//
// On Redis the record is a key, "mortise:1:since" for clients without the option, and "mortise:1:since:" and the scope
// with it. A Redis user that can write the key can keep the store out of every Red of the scope, or make an emptied store look
// old. So where services with different users share a server, each service names a scope of its own, its prefix
// for example, and its user may write that key only.
//
// The store is new in a scope in which it was never asked: the first Lock in it waits for as long as WithStayOut says.
// The scope is 1 to 256 bytes of UTF-8 without control characters; otherwise New returns [ErrInvalid].
func WithStayOutScope(scope string) ClientOption {
	return func(c *Client) error {
		if scope == "" || len(scope) > 256 || !utf8.ValidString(scope) || strings.ContainsFunc(scope, unicode.IsControl) {
			return fmt.Errorf("%w: WithStayOutScope(%q): 1 to 256 bytes of UTF-8 without control characters", ErrInvalid, shorten(scope))
		}
		c.outScope = scope
		return nil
	}
}

// outTime is for how long c's store stays out; zero if it does not.
func (c *Client) outTime() time.Duration {
	if c.stayOut < 0 {
		return c.watchdog
	}
	return c.stayOut
}

// knowsAge tells whether c's store can tell that it has to stay out.
func (c *Client) knowsAge() bool {
	s, has := c.session.(backend.AgeSession)
	return has && s.KnowsAge()
}

// ageOption asks that the store be as old.
type ageOption backend.Age

func (o ageOption) apply(r *request) error {
	r.age = &backend.Age{Least: o.Least, Scope: o.Scope}
	return nil
}

// errYoung is why a store that stays out refuses.
var errYoung = fmt.Errorf("%w: the store is new, was restarted or lost its data, and has no vote until all leases that it may have forgotten are over", ErrNotAcquired)
