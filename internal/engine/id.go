package engine

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mortise-go/mortise/internal/fail"
)

// newID draws a client's id: "host/pid/random".
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

// maxID bounds the length of a client's id in bytes.
const maxID = 256

// CheckID returns an error for a text that cannot be a client's id. Option is the name of the option in the error.
func CheckID(option, id string) error {
	if id == "" || len(id) > maxID || !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl) {
		return fail.Invalidf("%s(%q): 1 to %d bytes of UTF-8 without control characters", option, fail.Shorten(id), maxID)
	}
	return nil
}

// redissonID is the form of the ids of Redisson's clients: a UUID.
var redissonID = regexp.MustCompile(`^[0-9a-fA-F]+(-[0-9a-fA-F]+){4}$`)

// ownerPrefix returns what stands before the number in the owner ids of a client. Redisson's owner ids are a UUID, a
// colon and a number, and the scripts recognize its clients by that. So if the client's id is a UUID, a plus sign
// stands before the number.
func ownerPrefix(client string) string {
	if redissonID.MatchString(client) {
		return client + ":+"
	}
	return client + ":"
}

// ClientOf returns the client's id in an owner id: the text before the last colon.
func ClientOf(owner string) string {
	if i := strings.LastIndexByte(owner, ':'); i >= 0 {
		return owner[:i]
	}
	return owner
}

// defaultID is the form of the ids that newID draws.
var defaultID = regexp.MustCompile(`^([^/:]+)/([1-9][0-9]{0,8})/[a-z2-7]{13}$`)

// ProcessOf returns the host and the process in a client's id; "" and 0 if the id was not drawn by newID.
func ProcessOf(client string) (host string, pid int) {
	found := defaultID.FindStringSubmatch(client)
	if found == nil {
		return "", 0
	}
	pid, _ = strconv.Atoi(found[2])
	return found[1], pid
}

// permitIDBytes is the number of random bytes at the beginning of a permit's id, as in Redisson.
const permitIDBytes = 16

// newPermitIDs draws the ids of n permits, joined by commas. An id is random bytes and the client's id, in hexadecimal
// digits.
func newPermitIDs(client string, n int32) string {
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

// PermitClient returns the id of the client that holds a permit; "" if the permit's id does not contain it.
func PermitClient(id string) string {
	b, err := hex.DecodeString(id)
	if err != nil || len(b) <= permitIDBytes {
		return ""
	}
	return string(b[permitIDBytes:])
}

// CheckPermitID returns an error for a text that cannot be a permit's id.
func CheckPermitID(id string) error {
	if n := hex.DecodedLen(len(id)); n < permitIDBytes || n > permitIDBytes+maxID {
		return fail.Invalidf("the id %q is not 32 hexadecimal digits or more", fail.Shorten(id))
	}
	if _, err := hex.DecodeString(id); err != nil {
		return fail.Invalidf("the id %q is not of hexadecimal digits", fail.Shorten(id))
	}
	return nil
}
