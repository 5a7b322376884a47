package mortise

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
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

func checkID(id string) error {
	if id == "" || len(id) > maxID || !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl) {
		return fmt.Errorf("%w: WithID(%q): 1 to %d bytes of UTF-8 without control characters", ErrInvalid, shorten(id), maxID)
	}
	return nil
}

// clientOf is the client part of an owner: all before its last colon.
func clientOf(owner string) string {
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
