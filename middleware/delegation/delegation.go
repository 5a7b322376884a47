package delegation

import (
	"errors"
	"time"
)

// Header is the HTTP header of an entry. Header in lower case is the key of gRPC's metadata.
const Header = "Mortise-Delegation"

// Bounds of an entry. Anything beyond the bounds is never parsed ([ErrOversize]) and never issued.
const (
	// MaxEntry is the maximum length of an entry's text in bytes.
	MaxEntry = 4096
	// MaxDelegations is the maximum number of delegations in an entry, of [FromContext] and for [NewContext].
	MaxDelegations = 16
	// MaxName is the maximum length of a lock's name in an entry, in bytes; other names of locks
	// may be longer.
	MaxName = 1024
	// MaxOwner is the maximum length of an owner's id in bytes: a client's id, a colon and a
	// number.
	MaxOwner = 256 + 1 + 20
	// MaxAudience is the maximum length of a service's name in bytes.
	MaxAudience = 255
	// MaxKeyID is the maximum length of a key's id in bytes.
	MaxKeyID = 64
	// MaxSignature is the maximum length of a signature in bytes: HMAC-SHA-256 has 32, Ed25519 64.
	MaxSignature = 512
)

// The reasons of a refusal, for errors.Is. No content of a refused entry can be relied upon.
var (
	// ErrDuplicated: there is more than one entry. A service sends a single entry; with a second
	// entry an attacker hopes for two services that look at different entries.
	ErrDuplicated = errors.New("duplicated")
	// ErrOversize: the entry, or a part of the entry, is beyond the bounds above.
	ErrOversize = errors.New("oversize")
	// ErrVersion: the entry has another version of this format, or another format.
	ErrVersion = errors.New("unknown version")
	// ErrMalformed: no issuer writes such an entry.
	ErrMalformed = errors.New("malformed")
	// ErrUnknownKey: the verifier does not have the entry's key: the entry is forged, or the key
	// was retired too early, or is not yet everywhere.
	ErrUnknownKey = errors.New("unknown key")
	// ErrTampered: the signature does not match the named key.
	ErrTampered = errors.New("tampered")
	// ErrUnverified: the [Verifier] failed. The entry is neither right nor wrong; the caller may
	// repeat the request.
	ErrUnverified = errors.New("not verified")
	// ErrWrongAudience: the entry is for another service.
	ErrWrongAudience = errors.New("wrong audience")
	// ErrLifetime: the entry is valid for longer than the checker accepts.
	ErrLifetime = errors.New("lifetime too long")
	// ErrNotYetValid: the entry is from the future, by more than the permitted skew.
	ErrNotYetValid = errors.New("not yet valid")
	// ErrExpired: the entry has expired, by more than the permitted skew.
	ErrExpired = errors.New("expired")
	// ErrForbidden: the checker's policy refuses the entry: see [WithPolicy].
	ErrForbidden = errors.New("forbidden")
)

// reasons has a short name for each error. Reason returns the first that matches.
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

// Reason is a short name of the reason of a refusal: "tampered", "unknown_key", "wrong_audience"
// and so on, a name for each error above; "error" for any other error, "" for nil. Reason is for
// metrics and logs.
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

// Entry is the content of an entry: the delegated holds, the service, and the time of validity.
type Entry struct {
	// Key is the id of the signing key.
	Key string
	// Audience is the name of the service that may use the entry.
	Audience string
	// Issued and Expires bound the validity: whole milliseconds, by the issuer's clock.
	Issued, Expires time.Time
	// Delegations are the delegations of the caller's holds, innermost first: at least one. The
	// Expires of each delegation is the entry's.
	Delegations []Delegation
}
