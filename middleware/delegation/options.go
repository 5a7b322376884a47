package delegation

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/mortise-go/mortise"
)

const (
	// DefaultLifetime bounds the validity of an entry, unless [WithLifetime] says otherwise. The
	// lifetime covers the entry's way to the service, not the work of the request.
	DefaultLifetime = 30 * time.Second
	// DefaultLongest is the longest lifetime accepted by a checker, unless [WithLongest] says
	// otherwise.
	DefaultLongest = time.Minute
	// DefaultSkew is the permitted difference of clocks, unless [WithSkew] says otherwise.
	DefaultSkew = 5 * time.Second
	// MaxLifetime is the maximum of all three.
	MaxLifetime = 10 * time.Minute
)

// Option changes an [Issuer] or a [Checker]. An option that does not apply is refused with
// [mortise.ErrInvalid].
type Option struct {
	name   string
	issuer func(*Issuer) error
	check  func(*Checker) error
}

// WithLifetime, of an issuer, makes entries expire after d at the latest: between a second and
// [MaxLifetime]. Entries expire with the lease if the lease ends before, unless renewed.
func WithLifetime(d time.Duration) Option {
	return Option{name: "WithLifetime", issuer: func(i *Issuer) error {
		i.lifetime = d.Truncate(time.Millisecond)
		return between("WithLifetime", d, time.Second)
	}}
}

// WithSignerFor, of an issuer, signs entries for the service by s instead. With a separate ring for
// each pair of services, a compromised service can forge entries only for its own callees.
func WithSignerFor(audience string, s Signer) Option {
	return Option{name: "WithSignerFor", issuer: func(i *Issuer) error {
		if audience == "" || s == nil {
			return fmt.Errorf("%w: WithSignerFor needs an audience, and a Signer", mortise.ErrInvalid)
		}
		i.signers[audience] = s
		return nil
	}}
}

// WithNameFilter, of an issuer, limits the locks revealed to a service: delegations of names for
// which may returns false are left out. may is called concurrently, for each delegation. Without
// WithNameFilter a service is told of all leases in the context.
func WithNameFilter(may func(audience, name string) bool) Option {
	return Option{name: "WithNameFilter", issuer: func(i *Issuer) error {
		i.may = may
		if may == nil {
			return fmt.Errorf("%w: WithNameFilter(nil)", mortise.ErrInvalid)
		}
		return nil
	}}
}

// WithLongest, of a checker, refuses entries with a lifetime above d ([ErrLifetime]): between a
// second and [MaxLifetime]. WithLongest bounds the use of a stolen entry, and of an entry forged
// with a stolen key and kept.
func WithLongest(d time.Duration) Option {
	return Option{name: "WithLongest", check: func(c *Checker) error {
		c.longest = d
		return between("WithLongest", d, time.Second)
	}}
}

// WithSkew, of a checker, sets the permitted difference between the clocks of services: from 0 to
// [MaxLifetime]. A checker accepts an entry up to d before its issue, and up to d after its expiry.
func WithSkew(d time.Duration) Option {
	return Option{name: "WithSkew", check: func(c *Checker) error {
		c.skew = d
		return between("WithSkew", d, 0)
	}}
}

// WithPolicy, of a checker, has the last word on otherwise valid entries: whether the key may make
// these delegations. A returned error is wrapped with [ErrForbidden]. The policy is called
// concurrently. Without a policy, any service with a key may name a hold of any lock.
func WithPolicy(allow func(ctx context.Context, p Entry) error) Option {
	return Option{name: "WithPolicy", check: func(c *Checker) error {
		c.allow = allow
		if allow == nil {
			return fmt.Errorf("%w: WithPolicy(nil)", mortise.ErrInvalid)
		}
		return nil
	}}
}

// WithLogger makes an issuer log entries left out or unsigned, and a checker log refused entries:
// at the level Warn, without the entries' text. Without WithLogger nothing is logged.
func WithLogger(l *slog.Logger) Option {
	err := func() error {
		if l == nil {
			return fmt.Errorf("%w: WithLogger(nil); omit the option instead", mortise.ErrInvalid)
		}
		return nil
	}
	return Option{
		name:   "WithLogger",
		issuer: func(i *Issuer) error { i.logger = l; return err() },
		check:  func(c *Checker) error { c.logger = l; return err() },
	}
}

// WithObserver calls o for every entry. Package telemetry has an observer for OpenTelemetry.
func WithObserver(o Observer) Option {
	return Option{
		name:   "WithObserver",
		issuer: func(i *Issuer) error { i.observer = o; return nil },
		check:  func(c *Checker) error { c.observer = o; return nil },
	}
}

func between(name string, d, least time.Duration) error {
	if d < least || d > MaxLifetime {
		return fmt.Errorf("%w: %s(%v): between %v and %v", mortise.ErrInvalid, name, d, least, MaxLifetime)
	}
	return nil
}

func wrongSide(o Option, of string) error {
	return fmt.Errorf("%w: the option %q does not apply to %s", mortise.ErrInvalid, o.name, of)
}

// Observer receives the events of every entry. Its functions may be nil; they are called
// concurrently, on the request's goroutine, and should return at once.
type Observer struct {
	// Issued: an entry was made for a call, or failed. Issued is not called without a lease to
	// delegate.
	Issued func(IssuedEvent)
	// Checked: an entry of a request was accepted or refused.
	Checked func(CheckedEvent)
}

// IssuedEvent: see [Observer].
type IssuedEvent struct {
	// Context is the context of the call.
	Context context.Context
	// Audience is the name of the called service.
	Audience string
	// Delegations is the number of holds in the entry; LeftOut, the number of holds of the context
	// not in the entry: beyond the bounds, withheld from this service by [WithNameFilter], or of a kind
	// without delegations (read-write locks, permits, Quorum).
	Delegations, LeftOut int
	// Bytes is the entry's length; 0 if there is none.
	Bytes int
	// Err is the reason of a missing entry, if the signer failed.
	Err error
}

// CheckedEvent: see [Observer].
type CheckedEvent struct {
	// Context is the context of the request.
	Context context.Context
	// Entry is the content of an authentic entry; zero if nothing authentic is known.
	Entry Entry
	// Err is the reason of a refusal, nil for an accepted entry. [Reason] makes a label of Err.
	Err error
}
