package engine

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mortise-go/mortise/internal/fail"
)

const maxName = 65536

// CheckName returns an error for a name that cannot be a lock's. All keys and channels of a lock must be in one slot
// of a cluster. They are made, as Redisson's are, by putting the name into braces, or from the name as it is if it
// contains a brace. So the braces of such a name must form a hash tag.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: empty; all callers would share one lock", fail.InvalidName)
	case len(name) > maxName:
		return fmt.Errorf("%w: %d bytes; the limit is %d", fail.InvalidName, len(name), maxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: not UTF-8; encode the bytes, for example in hex", fail.InvalidName)
	}
	open := strings.IndexByte(name, '{')
	if open < 0 {
		if strings.IndexByte(name, '}') >= 0 {
			return fmt.Errorf("%w: a } without a { before it breaks the lock's slot on a cluster", fail.InvalidName)
		}
		return nil
	}
	if n := strings.IndexByte(name[open+1:], '}'); n <= 0 {
		return fmt.Errorf("%w: a { without a hash tag such as {tenant} breaks the lock's slot on a cluster",
			fail.InvalidName)
	}
	return nil
}

const (
	// MinLease is the shortest lease. The margin of each lease is 10 ms at least (clock.Margin), so a much shorter
	// lease would be over about when it begins.
	MinLease = 50 * time.Millisecond
	// MaxLease is the longest lease.
	MaxLease = 365 * 24 * time.Hour
)
