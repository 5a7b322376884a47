package delegation

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mortise-go/mortise"
)

// Issuer makes entries for calls to other services. An Issuer may be used concurrently, and for all
// services.
type Issuer struct {
	signer   Signer
	signers  map[string]Signer // by audience; signer serves the other audiences
	lifetime time.Duration
	may      func(audience, name string) bool
	logger   *slog.Logger
	observer Observer

	logged sync.Map // audiences for which logWithout has written its line
}

// NewIssuer makes an issuer with s for the signatures, for example a [*Ring]. An error wraps
// [mortise.ErrInvalid].
func NewIssuer(s Signer, opts ...Option) (*Issuer, error) {
	if s == nil {
		return nil, fmt.Errorf("delegation: NewIssuer: %w: the Signer must not be nil", mortise.ErrInvalid)
	}
	i := &Issuer{signer: s, signers: make(map[string]Signer), lifetime: DefaultLifetime}
	for _, o := range opts {
		if o.issuer == nil {
			return nil, fmt.Errorf("delegation: NewIssuer: %w", wrongSide(o, "an Issuer"))
		}
		if err := o.issuer(i); err != nil {
			return nil, fmt.Errorf("delegation: NewIssuer: %w", err)
		}
	}
	return i, nil
}

// Issue makes an entry for a call to the service with this name, with a delegation for each live
// lease in ctx, [MaxDelegations] at most. It returns "" if there is none. The innermost delegations
// go in first. A delegation without room is left out; a later, shorter one may still go in. Names
// beyond MaxName are left out, and so are leases without delegations: of read-write locks, permits and
// Quorum. [IssuedEvent] counts what is left out. Of two leases with the same name, in different stores, the outer one
// is left out. All these leases, also if left out, stay marked as delegated: see
// [FromContext].
//
// The entry expires after the lifetime, or with the lease, whichever is first.
//
// Errors: the signer's; [mortise.ErrInvalid] for an audience that is empty, not UTF-8 or beyond
// MaxAudience.
//
// Cost: no command; some microseconds.
func (i *Issuer) Issue(ctx context.Context, audience string) (string, error) {
	if i == nil || i.signer == nil {
		return "", fmt.Errorf("delegation: %w: the Issuer is nil or a zero value; make it with NewIssuer", mortise.ErrInvalid)
	}
	inner, without := held(ctx, math.MaxInt) // this chooses among them
	if len(inner) == 0 && without == 0 {
		return "", nil
	}
	i.logWithout(ctx, audience, without)
	delegations := make([]Delegation, 0, min(len(inner), MaxDelegations))
	left := room - (2 + MaxKeyID) - (2 + len(audience)) - 8 - 8 - 2 - (2 + MaxSignature)
	leftOut, tooLarge := without, 0
	now := time.Now().UTC()
	for _, h := range inner {
		c := Delegation(h)
		switch {
		case !c.Expires.IsZero() && c.Expires.UnixMilli() <= now.UnixMilli(), // it ends within this millisecond
			twice(delegations, c.Name): // a lease of the same name in another store
			leftOut++
		case i.may != nil && !i.may(audience, c.Name):
			leftOut++
		case len(delegations) == MaxDelegations, len(c.Name) > MaxName, len(c.Owner) > MaxOwner, size(&c) > left:
			leftOut++
			tooLarge++
		default:
			left -= size(&c)
			delegations = append(delegations, c)
		}
	}
	if tooLarge > 0 && i.logger != nil {
		i.logger.LogAttrs(ctx, slog.LevelWarn,
			"mortise: a call is not told of all locks that are held; what it calls will wait for them",
			slog.String("audience", audience),
			slog.Int("left_out", tooLarge),
			slog.Int("delegations", len(delegations)))
	}
	if len(delegations) == 0 {
		i.tell(IssuedEvent{Context: ctx, Audience: audience, LeftOut: leftOut})
		return "", nil
	}
	p := Entry{Audience: audience, Issued: now, Expires: now.Add(i.lifetime), Delegations: delegations}
	for _, c := range delegations {
		if !c.Expires.IsZero() && c.Expires.Before(p.Expires) {
			p.Expires = c.Expires
		}
	}
	signer, ok := i.signers[audience]
	if !ok {
		signer = i.signer
	}
	entry, err := p.Sign(ctx, signer)
	if errors.Is(err, ErrUnknownKey) { // the key was rotated out after Current
		entry, err = p.Sign(ctx, signer)
	}
	if err != nil && i.logger != nil {
		i.logger.LogAttrs(ctx, slog.LevelWarn, "mortise: no delegation for a call",
			slog.String("audience", audience), slog.Any("error", err))
	}
	i.tell(IssuedEvent{Context: ctx, Audience: audience, Delegations: len(delegations), LeftOut: leftOut,
		Bytes: len(entry), Err: err})
	return entry, err
}

func (i *Issuer) tell(e IssuedEvent) {
	if i.observer.Issued != nil {
		i.observer.Issued(e)
	}
}

// logWithout logs, once for an audience, that calls are not told of holds that have no delegation. Such holds are
// ordinary: a line for each call would say nothing new.
func (i *Issuer) logWithout(ctx context.Context, audience string, holds int) {
	if holds == 0 || i.logger == nil {
		return
	}
	if _, logged := i.logged.LoadOrStore(audience, nil); logged {
		return
	}
	i.logger.LogAttrs(ctx, slog.LevelWarn, "mortise: a call is not told of locks that are held, since read-write locks, "+
		"permits and locks of Quorum have no delegation; what it calls will wait for them, if it takes them. "+
		"This line is logged once for an audience",
		slog.String("audience", audience),
		slog.Int("left_out", holds))
}

// Sign makes an entry of p, signed by s's current key: p.Key and the delegations' Expires are
// ignored. Services use an [Issuer]; Sign is for tests, and for services with delegations from
// elsewhere.
//
// Errors: the signer's; [mortise.ErrInvalid] for invalid content, [ErrExpired] if p expires before
// its issue, [ErrOversize].
func (p Entry) Sign(ctx context.Context, s Signer) (string, error) {
	if s == nil {
		return "", fmt.Errorf("delegation: %w: the Signer is nil", mortise.ErrInvalid)
	}
	p.Key = s.Current()
	if err := p.check(); err != nil {
		return "", fmt.Errorf("delegation: for %q: %w", p.Audience, err)
	}
	message := p.encode(append(make([]byte, 0, 512), domain...))
	signature, err := s.Sign(ctx, p.Key, message)
	switch {
	case err != nil:
		return "", fmt.Errorf("delegation: for %q: signing with key %q: %w", p.Audience, p.Key, err)
	case len(signature) == 0 || len(signature) > MaxSignature:
		return "", fmt.Errorf("delegation: for %q: %w: the signer made a signature of %d bytes; 1 to %d",
			p.Audience, mortise.ErrInvalid, len(signature), MaxSignature)
	}
	whole := binary.BigEndian.AppendUint16(message[len(domain):], uint16(len(signature)))
	whole = append(whole, signature...)
	text := make([]byte, len(prefix)+base64url.EncodedLen(len(whole)))
	base64url.Encode(text[copy(text, prefix):], whole)
	if len(text) > MaxEntry {
		return "", fmt.Errorf("delegation: for %q: %w: %d bytes, the limit is %d", p.Audience, ErrOversize,
			len(text), MaxEntry)
	}
	return string(text), nil
}

func text(what, s string, most int) error {
	if s == "" || len(s) > most || !utf8.ValidString(s) {
		return fmt.Errorf("%w: %s is UTF-8 of 1 to %d bytes", mortise.ErrInvalid, what, most)
	}
	return nil
}

// plain returns an error unless s is a valid text without control characters.
func plain(what, s string, most int) error {
	if strings.ContainsFunc(s, unicode.IsControl) {
		return fmt.Errorf("%w: %s has a control character", mortise.ErrInvalid, what)
	}
	return text(what, s, most)
}

// check returns an error for content that decode would refuse.
func (p *Entry) check() error {
	err := errors.Join(plain("the key's id", p.Key, MaxKeyID), plain("the audience", p.Audience, MaxAudience))
	for n, c := range p.Delegations {
		if twice(p.Delegations[:n], c.Name) {
			err = errors.Join(err, fmt.Errorf("%w: two delegations of %q", mortise.ErrInvalid, c.Name))
		}
		err = errors.Join(err, text("a lock's name", c.Name, MaxName), plain("an owner's id", c.Owner, MaxOwner))
		if c.Hold < 1 || c.Hold > math.MaxInt32 || c.Token < 0 {
			err = errors.Join(err, fmt.Errorf("%w: a hold of %d, a token of %d", mortise.ErrInvalid, c.Hold, c.Token))
		}
	}
	switch issued, expires := p.Issued.UnixMilli(), p.Expires.UnixMilli(); {
	case err != nil:
		return err
	case len(p.Delegations) == 0 || len(p.Delegations) > MaxDelegations:
		return fmt.Errorf("%w: %d delegations; 1 to %d", mortise.ErrInvalid, len(p.Delegations), MaxDelegations)
	case issued < 0 || expires > latest:
		return fmt.Errorf("%w: a time out of range", mortise.ErrInvalid)
	case issued >= expires:
		return fmt.Errorf("%w: the lease is over", ErrExpired)
	}
	return nil
}
