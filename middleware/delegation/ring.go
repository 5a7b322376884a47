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

// Signer signs entries. [*Ring] is one; write another for signatures that only one service can make (Ed25519, a
// key management service). Its methods are called concurrently.
type Signer interface {
	// Current is the id of the key that is to sign now: UTF-8 of 1 to MaxKeyID bytes. It is part of what
	// is signed.
	Current() string
	// Sign signs message with the key of that id: 1 to MaxSignature bytes. An error that it returns is the
	// issuer's.
	Sign(ctx context.Context, key string, message []byte) ([]byte, error)
}

// Verifier verifies entries. [*Ring] is one. It is called concurrently.
type Verifier interface {
	// Verify returns nil if signature is that of message by the key of that id, an error that wraps
	// [ErrUnknownKey] if there is no such key, [ErrTampered] if it is not. Any other error becomes
	// [ErrUnverified]. It compares in constant time, and has to bear any input.
	Verify(ctx context.Context, key string, message, signature []byte) error
}

// MinSecret is the least bytes of a [Key]'s secret: as many as SHA-256 has.
const MinSecret = 32

// Key is a secret that services share, under a name: see [NewKey]. The secret is in no text that fmt,
// log/slog or an encoder makes of a Key, or of what contains one. The zero Key has no secret and is
// refused by [NewRing].
type Key struct {
	// ID names the key in entries, where any reader sees it: UTF-8 of 1 to MaxKeyID bytes without
	// control characters, such as "2026-11". An id is never used for another secret.
	ID string
	// secret is a function, since fmt prints what unexported fields contain, and what they point to.
	secret func() []byte
}

// NewKey returns a key. The secret, which is copied, is at least [MinSecret] random bytes
// (head -c 32 /dev/urandom) that are used for nothing else. NewRing checks both.
func NewKey(id string, secret []byte) Key {
	secret = slices.Clone(secret)
	return Key{id, func() []byte { return secret }}
}

// bytes returns the secret, which is not to be changed.
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

// Ring is a ring of keys for HMAC-SHA-256: one signs, all verify. Its methods may be called concurrently.
//
// A verifier can sign as well: every service that has a key can make an entry of any delegation to any audience.
// See docs/explanation/threat-model.md for what that means, and [Signer] for signatures where it is not so.
//
// To rotate: add the new key as an older one everywhere; when it is everywhere, make it the primary; when that is
// everywhere and MaxLifetime is over, leave the old one out.
type Ring struct {
	keys atomic.Pointer[[]Key] // the primary first
}

// NewRing makes a ring. primary signs and verifies, the others verify only. An error wraps [mortise.ErrInvalid]: a
// secret of less than [MinSecret] bytes or of zeros only, a bad id, one that is there twice.
func NewRing(primary Key, others ...Key) (*Ring, error) {
	r := new(Ring)
	if err := r.Rotate(primary, others...); err != nil {
		return nil, err
	}
	return r, nil
}

// Rotate replaces all keys. Entries that were signed by a key which is no longer there are refused from now on. If it
// returns an error, which wraps [mortise.ErrInvalid], nothing has changed.
func (r *Ring) Rotate(primary Key, others ...Key) error {
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

func (r *Ring) find(id string) (Key, bool) {
	if keys := r.keys.Load(); keys != nil {
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
	if keys := r.keys.Load(); keys != nil {
		return (*keys)[0].ID
	}
	return ""
}

// Sign implements [Signer].
func (r *Ring) Sign(_ context.Context, key string, message []byte) ([]byte, error) {
	k, ok := r.find(key)
	if !ok { // rotated out since Current
		return nil, fmt.Errorf("%w %q", ErrUnknownKey, key)
	}
	return sum(k.bytes(), message), nil
}

// Verify implements [Verifier].
func (r *Ring) Verify(_ context.Context, key string, message, signature []byte) error {
	k, ok := r.find(key)
	if !ok {
		return fmt.Errorf("%w %q", ErrUnknownKey, key)
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
