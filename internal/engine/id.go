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

// newPermitID makes a permit's id: 16 random bytes, as Redisson's are.
func newPermitID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
