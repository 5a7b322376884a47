package redisproto

import (
	"fmt"
	"strings"
)

// located returns err with the addresses of the servers in its text, if the adapter knows them, and the text does not
// name one of them already.
func (s *core) located(err error) error {
	x, is := s.adapter.(Locator)
	if !is {
		return err
	}
	servers := x.Servers()
	if servers == "" {
		return err
	}
	text := err.Error()
	for addr := range strings.SplitSeq(servers, ", ") {
		if strings.Contains(text, addr) {
			return err
		}
	}
	return &locatedError{err, servers}
}

type locatedError struct {
	error
	servers string
}

func (e *locatedError) Error() string { return fmt.Sprintf("%v, server %s", e.error, e.servers) }
func (e *locatedError) Unwrap() error { return e.error }

// Addresses returns the text of some addresses, for [Locator].
func Addresses(all []string) string {
	const most = 3
	if more := len(all) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), more)
	}
	return strings.Join(all, ", ")
}
