package delegation

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// An entry is prefix and, in base64url without padding,
//
//	key id, audience                    each: length in 2 bytes, UTF-8 without control characters
//	issued, expires                     each: milliseconds since 1970, 8 bytes
//	number of delegations               2 bytes
//	of each delegation: name, owner     each: length in 2 bytes, UTF-8, the owner without control characters
//	                    hold, token     8 bytes each
//	signature                           length in 2 bytes
//
// Integers are big-endian. Each field has exactly one encoding, its length is known before it, and nothing follows the
// signature. So the same content has the same text, and an entry can be read in one way only. The signature covers
// domain and all fields before the signature.
const (
	prefix = "m1."
	domain = "github.com/mortise-go/mortise/middleware/delegation m1\x00"
)

// latest is the latest time in an entry, in milliseconds since 1970: the end of the year 9999, as in RFC 3339.
const latest = 253402300799999

// alphabet has the characters of base64url. It is checked because the decoder of the standard library skips line
// breaks.
var alphabet = func() (a [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") {
		a[c] = true
	}
	return a
}()

var base64url = base64.RawURLEncoding.Strict()

// encode appends p, without a signature, to a message.
func (p *Entry) encode(to []byte) []byte {
	to = appendText(to, p.Key)
	to = appendText(to, p.Audience)
	to = binary.BigEndian.AppendUint64(to, uint64(p.Issued.UnixMilli()))
	to = binary.BigEndian.AppendUint64(to, uint64(p.Expires.UnixMilli()))
	to = binary.BigEndian.AppendUint16(to, uint16(len(p.Delegations)))
	for i := range p.Delegations {
		c := &p.Delegations[i]
		to = appendText(to, c.Name)
		to = appendText(to, c.Owner)
		to = binary.BigEndian.AppendUint64(to, uint64(c.Hold))
		to = binary.BigEndian.AppendUint64(to, uint64(c.Token))
	}
	return to
}

func appendText(to []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(to, uint16(len(s))), s...)
}

// size returns the length of an encoded delegation in bytes.
func size(c *Delegation) int { return 2 + len(c.Name) + 2 + len(c.Owner) + 8 + 8 }

// room bounds the length of an entry's fields, with the signature, in bytes before base64url.
const room = (MaxEntry - len(prefix)) * 3 / 4

// Decode reads an entry WITHOUT verifying the entry, for inspection tools: any process can have
// written the result. Services use [Checker.Check].
//
// Errors: [ErrOversize], [ErrVersion], [ErrMalformed].
func Decode(entry string) (Entry, error) {
	p, _, _, err := decode(entry)
	return p, err
}

// decode reads an entry. It also returns the signed message, and the signature.
func decode(entry string) (p Entry, message, signature []byte, err error) {
	if len(entry) > MaxEntry {
		return p, nil, nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrOversize, len(entry), MaxEntry)
	}
	text, ok := strings.CutPrefix(entry, prefix)
	if !ok {
		return p, nil, nil, fmt.Errorf("%w: an entry begins with %q", ErrVersion, prefix)
	}
	for i := range len(text) {
		if !alphabet[text[i]] {
			return p, nil, nil, fmt.Errorf("%w: a character that is not base64url's", ErrMalformed)
		}
	}
	whole := make([]byte, len(domain)+base64url.DecodedLen(len(text)))
	n := copy(whole, domain)
	if _, err := base64url.Decode(whole[n:], []byte(text)); err != nil {
		return p, nil, nil, fmt.Errorf("%w: not base64url", ErrMalformed)
	}
	r := reader{rest: whole[n:]}
	p.Key = r.plain("the key's id", MaxKeyID)
	p.Audience = r.plain("the audience", MaxAudience)
	p.Issued = r.time("issued")
	p.Expires = r.time("expires")
	delegations := r.uint16()
	switch {
	case r.err != nil:
	case delegations == 0:
		r.fail("it has no delegations")
	case delegations > MaxDelegations:
		r.err = fmt.Errorf("%w: %d delegations, the limit is %d", ErrOversize, delegations, MaxDelegations)
	case !p.Issued.Before(p.Expires):
		r.fail("it expires before it is issued")
	default:
		p.Delegations = make([]Delegation, delegations)
	}
	for i := range p.Delegations {
		c := &p.Delegations[i]
		c.Name = r.text("a lock's name", MaxName)
		c.Owner = r.plain("an owner's id", MaxOwner)
		c.Hold = int(r.number("a hold", 1, math.MaxInt32))
		c.Token = int64(r.number("a token", 0, math.MaxInt64))
		c.Expires = p.Expires
		if r.err == nil && twice(p.Delegations[:i], c.Name) {
			r.fail("a lock's name appears twice")
		}
	}
	end := len(whole) - len(r.rest)
	message = whole[:end:end] // no capacity: a Verifier's append makes a copy
	signature = r.bytes("the signature", MaxSignature)
	if r.err == nil && len(r.rest) > 0 {
		r.fail("something follows the signature")
	}
	if r.err != nil {
		return Entry{}, nil, nil, r.err
	}
	return p, message, signature, nil
}

// twice reports whether before has a delegation of the name. An entry with two of a name is refused: code that searches
// by name and code that goes through all delegations must see the same.
func twice(before []Delegation, name string) bool {
	return slices.ContainsFunc(before, func(c Delegation) bool { return c.Name == name })
}

// reader reads fields from the front of rest. After the first error it reads zero values.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrMalformed, what)
	}
}

func (r *reader) take(n int) []byte {
	if r.err == nil && len(r.rest) < n {
		r.fail("it is cut off")
	}
	if r.err != nil {
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) uint16() int {
	b := r.take(2)
	if b == nil {
		return 0
	}
	return int(binary.BigEndian.Uint16(b))
}

func (r *reader) uint64() uint64 {
	b := r.take(8)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// bytes reads a field of 1 to most bytes.
func (r *reader) bytes(what string, most int) []byte {
	n := r.uint16()
	switch {
	case r.err != nil:
	case n == 0:
		r.fail(what + " is empty")
	case n > most:
		r.err = fmt.Errorf("%w: %s has %d bytes, the limit is %d", ErrOversize, what, n, most)
	}
	return r.take(n)
}

func (r *reader) text(what string, most int) string {
	b := r.bytes(what, most)
	if r.err == nil && !utf8.Valid(b) {
		r.fail(what + " is not UTF-8")
	}
	return string(b)
}

// plain reads a text without control characters.
func (r *reader) plain(what string, most int) string {
	s := r.text(what, most)
	if r.err == nil && strings.ContainsFunc(s, unicode.IsControl) {
		r.fail(what + " has a control character")
	}
	return s
}

func (r *reader) number(what string, least, most uint64) uint64 {
	n := r.uint64()
	if r.err == nil && (n < least || n > most) {
		r.fail(what + " is out of range")
	}
	return n
}

func (r *reader) time(what string) time.Time {
	return time.UnixMilli(int64(r.number(what, 0, latest))).UTC()
}
