package engine

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mortise-go/mortise/internal/fail"
)

// newID makes "host/pid/random".
func newID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	host = strings.Map(func(r rune) rune {
		if r <= ' ' || r == '/' || r == ':' || r == utf8.RuneError || unicode.IsControl(r) {
			return '_'
		}
		return r
	}, host)
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), strings.ToLower(rand.Text()[:13]))
}

// maxID bounds a client's id.
const maxID = 256

// CheckID refuses an id that a client cannot have.
func CheckID(option, id string) error {
	if id == "" || len(id) > maxID || !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl) {
		return fail.Invalidf("%s(%q): 1 to %d bytes of UTF-8 without control characters", option, fail.Shorten(id), maxID)
	}
	return nil
}

// ClientOf is the client part of an owner: all before its last colon.
func ClientOf(owner string) string {
	if i := strings.LastIndexByte(owner, ':'); i >= 0 {
		return owner[:i]
	}
	return owner
}

// permitIDBytes is how many random bytes a permit's id begins with, as many as Redisson's have.
const permitIDBytes = 16

// newPermitIDs makes the ids of n permits: random bytes, and the id of the client that holds them.
func newPermitIDs(client string, n int64) string {
	id := append(make([]byte, permitIDBytes, permitIDBytes+len(client)), client...)
	all := make([]byte, 0, int(n)*(hex.EncodedLen(len(id))+1))
	for i := range n {
		if i > 0 {
			all = append(all, ',')
		}
		_, _ = rand.Read(id[:permitIDBytes]) // never fails
		all = hex.AppendEncode(all, id)
	}
	return string(all)
}

// PermitClient is the client that holds the permit of an id; "" if the id does not say.
func PermitClient(id string) string {
	b, err := hex.DecodeString(id)
	if err != nil || len(b) <= permitIDBytes {
		return ""
	}
	return string(b[permitIDBytes:])
}

// CheckPermitID refuses what is no permit's id.
func CheckPermitID(id string) error {
	if n := hex.DecodedLen(len(id)); n < permitIDBytes || n > permitIDBytes+maxID {
		return fail.Invalidf("the id %q is not 32 hexadecimal digits or more", fail.Shorten(id))
	}
	if _, err := hex.DecodeString(id); err != nil {
		return fail.Invalidf("the id %q is not of hexadecimal digits", fail.Shorten(id))
	}
	return nil
}
