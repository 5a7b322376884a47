package delegation

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/mortise-go/mortise"
)

const (
	// DefaultLifetime is for how long an entry is valid at most, unless [WithLifetime] says otherwise: for its way, not
	// for the work that it begins.
	DefaultLifetime = 30 * time.Second
	// DefaultLongest is the lifetime that a checker accepts at most, unless [WithLongest] says otherwise.
	DefaultLongest = time.Minute
	// DefaultSkew is by how much clocks may differ, unless [WithSkew] says otherwise.
	DefaultSkew = 5 * time.Second
	// MaxLifetime is the most for all three.
	MaxLifetime = 10 * time.Minute
)

// Option changes an [Issuer] or a [Checker]. One that does not apply is refused with [mortise.ErrInvalid].
type Option struct {
	name   string
	issuer func(*Issuer) error
	check  func(*Checker) error
}

// WithLifetime, of an issuer, has entries expire after d at the latest: between a second and [MaxLifetime]. They
// expire with the lease if that ends before, unless renewed.
func WithLifetime(d time.Duration) Option {
	return Option{name: "WithLifetime", issuer: func(i *Issuer) error {
		i.lifetime = d.Truncate(time.Millisecond)
		return between("WithLifetime", d, time.Second)
	}}
}

// WithSignerFor, of an issuer, signs what is for that service by s instead. With a ring of its own for each pair
// of services, a service that is broken into can make entries to those only whom it calls itself.
func WithSignerFor(audience string, s Signer) Option {
	return Option{name: "WithSignerFor", issuer: func(i *Issuer) error {
		if audience == "" || s == nil {
			return fmt.Errorf("%w: WithSignerFor needs an audience, and a Signer", mortise.ErrInvalid)
		}
		i.signers[audience] = s
		return nil
	}}
}

// WithNameFilter, of an issuer, says of which locks a service is told: delegations of names for which may returns false
// are left out. It is called concurrently, for each delegation. Without it a service is told of all that the context
// carries.
func WithNameFilter(may func(audience, name string) bool) Option {
	return Option{name: "WithNameFilter", issuer: func(i *Issuer) error {
		i.may = may
		if may == nil {
			return fmt.Errorf("%w: WithNameFilter(nil)", mortise.ErrInvalid)
		}
		return nil
	}}
}

// WithLongest, of a checker, refuses entries that were issued for longer than d ([ErrLifetime]): between a second and
// [MaxLifetime]. It bounds what one that was stolen, or forged with a stolen key and kept, is good for.
func WithLongest(d time.Duration) Option {
	return Option{name: "WithLongest", check: func(c *Checker) error {
		c.longest = d
		return between("WithLongest", d, time.Second)
	}}
}

// WithSkew, of a checker, says by how much the clocks of services may differ: from 0 to [MaxLifetime]. An entry
// is accepted that much before it was issued, and after it has expired.
func WithSkew(d time.Duration) Option {
	return Option{name: "WithSkew", check: func(c *Checker) error {
		c.skew = d
		return between("WithSkew", d, 0)
	}}
}

// WithPolicy, of a checker, has the last word on entries that are in order otherwise: whether that key may make
// these delegations. What it returns is wrapped with [ErrForbidden]. It is called concurrently. Without it, any
// service that has a key may name a hold of any lock.
func WithPolicy(allow func(ctx context.Context, p Entry) error) Option {
	return Option{name: "WithPolicy", check: func(c *Checker) error {
		c.allow = allow
		if allow == nil {
			return fmt.Errorf("%w: WithPolicy(nil)", mortise.ErrInvalid)
		}
		return nil
	}}
}

// WithLogger has an issuer log what it leaves out or cannot sign, a checker what it refuses: at the level Warn, without
// the entries. Without it nothing is logged.
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

// WithObserver has o called for every entry. package telemetry has one for OpenTelemetry.
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

// Observer is told of every entry. Its functions may be nil; they are called concurrently, on the request's
// goroutine, and should return at once.
type Observer struct {
	// Issued: an entry was made for a call, or could not be. It is not called where there is nothing to delegate.
	Issued func(IssuedEvent)
	// Checked: a request brought an entry, which was accepted or refused.
	Checked func(CheckedEvent)
}

// IssuedEvent: see [Observer].
type IssuedEvent struct {
	// Context is the call's.
	Context context.Context
	// Audience is the service that is called.
	Audience string
	// Delegations is how many holds the entry delegates; LeftOut, how many it does not though the context carries
	// them: beyond the bounds, or not for this service by [WithNameFilter].
	Delegations, LeftOut int
	// Bytes is the entry's length; 0 if there is none.
	Bytes int
	// Err is why there is none, if the signer failed.
	Err error
}

// CheckedEvent: see [Observer].
type CheckedEvent struct {
	// Context is the request's.
	Context context.Context
	// Entry is what the entry says, where that is authentic; zero where nothing is known of it.
	Entry Entry
	// Err is why it was refused, nil if it was accepted. [Reason] makes a label of it.
	Err error
}
