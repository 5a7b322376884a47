package delegation

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/mortise-go/mortise"
)

// Signer signs entries. [*Ring] is a Signer; write another Signer for signatures that a single
// service can make (Ed25519, a key management service). The methods are called concurrently.
type Signer interface {
	// Current is the id of the key to sign with now: UTF-8 of 1 to MaxKeyID bytes. The id is part
	// of the signed text.
	Current() string
	// Sign signs message with the key of this id: 1 to MaxSignature bytes. A returned error becomes
	// the issuer's.
	Sign(ctx context.Context, key string, message []byte) ([]byte, error)
}

// Verifier verifies entries. [*Ring] is a Verifier. Verify is called concurrently.
type Verifier interface {
	// Verify returns nil if signature is the signature of message by the key with this id, an error
	// that wraps [ErrUnknownKey] if there is no such key, [ErrTampered] if the signature is wrong.
	// Any other error becomes [ErrUnverified]. Verify compares in constant time, and has to
	// withstand any input.
	Verify(ctx context.Context, key string, message, signature []byte) error
}

// MinSecret is the minimum length of a [Key]'s secret in bytes: the length of a SHA-256 sum.
const MinSecret = 32

// Key is a secret shared by services, under a name: see [NewKey]. fmt, log/slog and encoders do not
// reveal the secret of a Key, nor of a value with a Key inside. The zero Key has no secret and is
// refused by [NewRing].
type Key struct {
	// ID names the key in entries, where any reader sees it: UTF-8 of 1 to MaxKeyID bytes without
	// control characters, such as "2026-11". An id is never used for another secret.
	ID string
	// secret is a function because fmt prints the content of unexported fields, also behind a pointer.
	secret func() []byte
}

// NewKey returns a key. The secret is copied, and is at least [MinSecret] random bytes (head -c 32
// /dev/urandom) without any other use. NewRing checks id and secret.
func NewKey(id string, secret []byte) Key {
	secret = slices.Clone(secret)
	return Key{id, func() []byte { return secret }}
}

// bytes returns the secret. The caller must not change it.
func (k Key) bytes() []byte {
	if k.secret == nil {
		return nil
	}
	return k.secret()
}

// String returns the word key and the id.
func (k Key) String() string { return "key " + k.ID }

// GoString returns what String does, for %#v.
func (k Key) GoString() string { return k.String() }

// Ring is a ring of keys for HMAC-SHA-256: one key signs, all keys verify. The methods may be
// called concurrently.
//
// A verifier can sign as well: every service with a key can make an entry of any delegation to any
// audience. See docs/explanation/threat-model.md for the consequences, and [Signer] for signatures
// without this property.
//
// To rotate: add the new key as an older key everywhere; afterwards make the new key the primary
// everywhere; MaxLifetime later, remove the old key.
type Ring struct {
	keys atomic.Pointer[[]Key] // the primary first
}

// NewRing makes a ring. primary signs and verifies, the others verify only. An error wraps
// [mortise.ErrInvalid]: a secret of less than [MinSecret] bytes or of zeros only, an invalid id, a
// duplicate id.
func NewRing(primary Key, others ...Key) (*Ring, error) {
	r := new(Ring)
	if err := r.Rotate(primary, others...); err != nil {
		return nil, err
	}
	return r, nil
}

// Rotate replaces all keys. Entries signed by a removed key are refused from now on. An error wraps
// [mortise.ErrInvalid], and leaves the ring unchanged.
func (r *Ring) Rotate(primary Key, others ...Key) error {
	if r == nil {
		return fmt.Errorf("delegation: %w", errNoRing)
	}
	keys := append([]Key{primary}, others...)
	for i := range keys {
		k := &keys[i]
		switch err := plain("a key's id", k.ID, MaxKeyID); {
		case err != nil:
			return fmt.Errorf("delegation: %w", err)
		case k.secret == nil:
			return fmt.Errorf("delegation: %w: key %q has no secret; use NewKey", mortise.ErrInvalid, k.ID)
		case len(k.bytes()) < MinSecret:
			return fmt.Errorf("delegation: %w: key %q has %d bytes; use at least %d random bytes",
				mortise.ErrInvalid, k.ID, len(k.bytes()), MinSecret)
		case !slices.ContainsFunc(k.bytes(), func(b byte) bool { return b != k.bytes()[0] }):
			return fmt.Errorf("delegation: %w: key %q is one byte repeated; use random bytes", mortise.ErrInvalid, k.ID)
		case slices.ContainsFunc(keys[:i], func(o Key) bool { return o.ID == k.ID }):
			return fmt.Errorf("delegation: %w: two keys have the id %q", mortise.ErrInvalid, k.ID)
		}
	}
	r.keys.Store(&keys)
	return nil
}

// errNoRing is the error of a Ring without keys.
var errNoRing = fmt.Errorf("%w: the Ring is nil or a zero value; make it with NewRing", mortise.ErrInvalid)

// load returns the keys; none of a nil or zero Ring.
func (r *Ring) load() *[]Key {
	if r == nil {
		return nil
	}
	return r.keys.Load()
}

// missing returns the error for a key that the ring does not have.
func (r *Ring) missing(key string) error {
	if r.load() == nil {
		return errNoRing
	}
	return fmt.Errorf("%w %q", ErrUnknownKey, key)
}

func (r *Ring) find(id string) (Key, bool) {
	if keys := r.load(); keys != nil {
		for _, k := range *keys {
			if k.ID == id {
				return k, true
			}
		}
	}
	return Key{}, false
}

// Current implements [Signer]: the primary's id.
func (r *Ring) Current() string {
	if keys := r.load(); keys != nil {
		return (*keys)[0].ID
	}
	return ""
}

// Sign implements [Signer].
func (r *Ring) Sign(_ context.Context, key string, message []byte) ([]byte, error) {
	k, ok := r.find(key)
	if !ok { // rotated out since Current
		return nil, r.missing(key)
	}
	return sum(k.bytes(), message), nil
}

// Verify implements [Verifier].
func (r *Ring) Verify(_ context.Context, key string, message, signature []byte) error {
	k, ok := r.find(key)
	if !ok {
		return r.missing(key)
	}
	if !hmac.Equal(sum(k.bytes(), message), signature) {
		return fmt.Errorf("%w: the signature is not that of key %q", ErrTampered, key)
	}
	return nil
}

func sum(secret, message []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write(message)
	return h.Sum(nil)
}
