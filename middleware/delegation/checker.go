package delegation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/mortise-go/mortise"
)

// Checker checks the entries in requests to a service. The methods may be called concurrently.
type Checker struct {
	verifier Verifier
	audience string
	longest  time.Duration
	skew     time.Duration
	allow    func(context.Context, Entry) error
	logger   *slog.Logger
	observer Observer
}

// NewChecker makes a checker for the service with this name, as used by issuers. An error wraps
// [mortise.ErrInvalid].
func NewChecker(v Verifier, audience string, opts ...Option) (*Checker, error) {
	if v == nil {
		return nil, fmt.Errorf("delegation: NewChecker: %w: the Verifier must not be nil", mortise.ErrInvalid)
	}
	if err := plain("the audience", audience, MaxAudience); err != nil {
		return nil, fmt.Errorf("delegation: NewChecker: %w", err)
	}
	c := &Checker{verifier: v, audience: audience, longest: DefaultLongest, skew: DefaultSkew}
	for _, o := range opts {
		if o.check == nil {
			return nil, fmt.Errorf("delegation: NewChecker: %w", wrongSide(o, "a Checker"))
		}
		if err := o.check(c); err != nil {
			return nil, fmt.Errorf("delegation: NewChecker: %w", err)
		}
	}
	return c, nil
}

// Check returns the content of a request's entry, if the entry is valid. entries are all entries of
// the request; more than one entry is refused. Check first compares the bounds, then parses, then
// verifies the signature, and checks everything else afterwards: so only a holder of a key learns
// more than "wrong signature".
//
// Errors: those of this package. Cost: no command; some microseconds.
func (c *Checker) Check(ctx context.Context, entries ...string) (Entry, error) {
	c = c.orZero()
	p, err := c.check(ctx, entries)
	return c.tell(ctx, p, err)
}

// tell reports the result of a check to the observer, and logs a refusal.
func (c *Checker) tell(ctx context.Context, p Entry, err error) (Entry, error) {
	if err != nil {
		err = fmt.Errorf("delegation: %w", err)
		if c.logger != nil {
			c.logger.LogAttrs(ctx, slog.LevelWarn, "mortise: a delegation is refused",
				slog.String("reason", Reason(err)), slog.Any("error", err))
		}
	}
	if c.observer.Checked != nil {
		c.observer.Checked(CheckedEvent{Context: ctx, Entry: p, Err: err})
	}
	if err != nil {
		return Entry{}, err
	}
	return p, nil
}

// Accept checks the entry of a request, and returns a context with the delegations: Lock under this
// context enters the caller's locks. Without entries Accept returns ctx.
//
// Errors: the errors of [Checker.Check], and of the *mortise.Client.
func (c *Checker) Accept(ctx context.Context, locks *mortise.Client, entries ...string) (context.Context, error) {
	if len(entries) == 0 {
		return ctx, nil
	}
	accepted := ctx
	c = c.orZero()
	p, err := c.check(ctx, entries)
	if err == nil {
		if accepted, err = NewContext(ctx, locks, p.Delegations...); err != nil {
			err = fmt.Errorf("the caller's locks cannot be entered: %w", err)
		}
	}
	if _, err = c.tell(ctx, p, err); err != nil {
		return nil, err
	}
	return accepted, nil
}

// orZero returns c, or for nil the zero Checker, whose check fails.
func (c *Checker) orZero() *Checker {
	if c == nil {
		return new(Checker)
	}
	return c
}

// check checks the entries of a request. Along with an error it returns the Entry only if the Entry is authentic.
func (c *Checker) check(ctx context.Context, entries []string) (Entry, error) {
	if c.verifier == nil {
		return Entry{}, fmt.Errorf("%w: the Checker is nil or a zero value; make it with NewChecker", mortise.ErrInvalid)
	}
	switch len(entries) {
	case 0:
		return Entry{}, fmt.Errorf("%w: no entry", ErrMalformed)
	case 1:
	default:
		return Entry{}, fmt.Errorf("%w: %d entries", ErrDuplicated, len(entries))
	}
	entry := entries[0]
	// A proxy may join header fields of the same name with a comma. A single entry has no comma.
	if len(entry) <= 2*MaxEntry && strings.IndexByte(entry, ',') >= 0 {
		return Entry{}, fmt.Errorf("%w: several entries, joined", ErrDuplicated)
	}
	p, message, signature, err := decode(entry)
	if err != nil {
		return Entry{}, err
	}
	if err := c.verifier.Verify(ctx, p.Key, message, signature); err != nil {
		if !errors.Is(err, ErrUnknownKey) && !errors.Is(err, ErrTampered) {
			err = fmt.Errorf("%w: %w", ErrUnverified, err)
		}
		return Entry{}, err
	}
	now := time.Now()
	switch life := p.Expires.Sub(p.Issued); {
	case p.Audience != c.audience:
		err = fmt.Errorf("%w: made out to %q, this service is %q", ErrWrongAudience, p.Audience, c.audience)
	case life > c.longest:
		err = fmt.Errorf("%w: %v, at most %v is accepted", ErrLifetime, life, c.longest)
	case now.Add(c.skew).Before(p.Issued):
		err = fmt.Errorf("%w: issued %v from now; compare the clocks",
			ErrNotYetValid, p.Issued.Sub(now).Round(time.Millisecond))
	case !now.Add(-c.skew).Before(p.Expires):
		err = fmt.Errorf("%w: %v ago", ErrExpired, now.Sub(p.Expires).Round(time.Millisecond))
	case c.allow != nil:
		if denied := c.allow(ctx, p); denied != nil {
			err = fmt.Errorf("%w: %w", ErrForbidden, denied)
		}
	}
	return p, err
}
