package delegation

import (
	"context"
	"errors"
	"time"

	"github.com/mortise-go/mortise"
)

// Header is the HTTP header that carries an entry. Its lower case is the key of gRPC's metadata.
const Header = "Mortise-Delegation"

// Bounds of an entry. What is beyond them is never parsed ([ErrOversize]) and never issued.
const (
	// MaxEntry is the most bytes of an entry, as the text that it is.
	MaxEntry = 4096
	// MaxDelegations is the most delegations in one.
	MaxDelegations = mortise.MaxDelegations
	// MaxName is the most bytes of a lock's name in one; names of locks may be longer otherwise.
	MaxName = 1024
	// MaxOwner is the most bytes of an owner's id: a client's, a colon and a number.
	MaxOwner = 256 + 1 + 20
	// MaxAudience is the most bytes of a service's name.
	MaxAudience = 255
	// MaxKeyID is the most bytes of a key's id.
	MaxKeyID = 64
	// MaxSignature is the most bytes of a signature: one of HMAC-SHA-256 has 32, of Ed25519 64.
	MaxSignature = 512
)

// Why an entry is refused, for errors.Is. Nothing of a refused entry is to be relied upon.
var (
	// ErrDuplicated: there is more than one entry. A service puts one; an attacker that adds another hopes that
	// one service looks at one and another at the other.
	ErrDuplicated = errors.New("duplicated")
	// ErrOversize: the entry, or a part of it, is beyond the bounds above.
	ErrOversize = errors.New("oversize")
	// ErrVersion: the entry is of another version of this format, or of something else.
	ErrVersion = errors.New("unknown version")
	// ErrMalformed: the entry is not what any issuer writes.
	ErrMalformed = errors.New("malformed")
	// ErrUnknownKey: it names a key that the verifier does not have: forged, or the key was
	// retired too early, or is not yet everywhere.
	ErrUnknownKey = errors.New("unknown key")
	// ErrTampered: its signature is not that of the key that it names.
	ErrTampered = errors.New("tampered")
	// ErrUnverified: the [Verifier] could not tell. It is neither right nor wrong; the caller may repeat it.
	ErrUnverified = errors.New("not verified")
	// ErrWrongAudience: it was made out to another service.
	ErrWrongAudience = errors.New("wrong audience")
	// ErrLifetime: it is valid for longer than the checker accepts.
	ErrLifetime = errors.New("lifetime too long")
	// ErrNotYetValid: it is from the future, by more than the skew that is allowed.
	ErrNotYetValid = errors.New("not yet valid")
	// ErrExpired: its time is over, by more than the skew that is allowed.
	ErrExpired = errors.New("expired")
	// ErrForbidden: the checker's policy refuses it: see [WithPolicy].
	ErrForbidden = errors.New("forbidden")
)

// reasons are short names of the errors, in the order in which they are looked for.
var reasons = []struct {
	err  error
	name string
}{
	{ErrDuplicated, "duplicated"},
	{ErrOversize, "oversize"},
	{ErrVersion, "version"},
	{ErrMalformed, "malformed"},
	{ErrUnknownKey, "unknown_key"},
	{ErrTampered, "tampered"},
	{ErrUnverified, "unverified"},
	{ErrWrongAudience, "wrong_audience"},
	{ErrLifetime, "lifetime"},
	{ErrNotYetValid, "not_yet_valid"},
	{ErrExpired, "expired"},
	{ErrForbidden, "forbidden"},
}

// Reason is a short name of why an entry was refused: "tampered", "unknown_key", "wrong_audience" and so on, one
// for each error above; "error" for any other, "" for nil. It is for metrics and logs.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return r.name
		}
	}
	return "error"
}

// Entry is the content of an entry: which holds are delegated to which service, and until when.
type Entry struct {
	// Key is the id of the key that signed it.
	Key string
	// Audience is the name of the service that it is made out to.
	Audience string
	// Issued and Expires bound when it is valid: whole milliseconds, by the issuer's clock.
	Issued, Expires time.Time
	// Delegations are those of the caller's holds, innermost first: at least one. Each one's Expires is
	// the entry's.
	Delegations []mortise.Delegation
}

// Acceptor puts delegations into a context: [*mortise.Client].
type Acceptor interface {
	WithDelegations(ctx context.Context, delegations ...mortise.Delegation) (context.Context, error)
}
