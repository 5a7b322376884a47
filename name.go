package mortise

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const maxName = 65536

// checkName refuses names that cannot be shared. A lock's keys and channels must
// fall on one slot of a cluster: they are made by putting the name into braces,
// or, where it has a brace already, by leaving it as it is (as Redisson does), so
// the braces that a name has must form a hash tag.
func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty; an empty name would make everybody share one lock", ErrBadName)
	case len(name) > maxName:
		return fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrBadName, len(name), maxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: it is not UTF-8; encode the bytes, in hex for one", ErrBadName)
	}
	open := strings.IndexByte(name, '{')
	if open < 0 {
		if strings.IndexByte(name, '}') >= 0 {
			return fmt.Errorf("%w: a } without a { before it breaks the lock's slot on a cluster", ErrBadName)
		}
		return nil
	}
	if n := strings.IndexByte(name[open+1:], '}'); n <= 0 {
		return fmt.Errorf("%w: its { begins no hash tag such as {tenant}, which breaks the lock's slot on a cluster", ErrBadName)
	}
	return nil
}
