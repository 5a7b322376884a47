package backend

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
)

var (
	registering sync.RWMutex
	registered  = make(map[string]func(address string) (Backend, error))
)

// ErrNoScheme is what [ByURL] wraps if no package is registered for the URL's scheme.
var ErrNoScheme = errors.New("no store is registered for the scheme")

// Register makes a store known to mortise.Open for the URLs of a scheme, such as "redis". The store's package calls it
// in an init function, so that a program chooses its stores by imports, as with database/sql. open gets the whole URL,
// does no I/O, and returns an error for a URL that it does not understand; the error must not have the URL's password.
//
// Register panics if an argument is empty, or the scheme is registered already.
func Register(scheme string, open func(address string) (Backend, error)) {
	registering.Lock()
	defer registering.Unlock()
	switch _, twice := registered[scheme]; {
	case scheme == "" || open == nil:
		panic("backend: Register: a scheme and a function are needed")
	case twice:
		panic("backend: Register: the scheme " + scheme + " is registered already")
	}
	registered[scheme] = open
}

// Schemes returns the schemes that are registered, in order.
func Schemes() []string {
	registering.RLock()
	defer registering.RUnlock()
	return slices.Sorted(maps.Keys(registered))
}

// ByURL returns the backend of a URL, by the package that is registered for its scheme. It does no I/O. The error of an
// unknown scheme wraps [ErrNoScheme]; no error has the URL's password.
func ByURL(address string) (Backend, error) {
	scheme, _, ok := strings.Cut(address, ":")
	if !ok || scheme == "" {
		return nil, errors.New("the URL of a store begins with a scheme, such as memory: for this process")
	}
	registering.RLock()
	open := registered[scheme]
	registering.RUnlock()
	if open == nil {
		return nil, fmt.Errorf("%w %q", ErrNoScheme, scheme)
	}
	b, err := open(address)
	if err != nil {
		return nil, fmt.Errorf("the URL of the %s store: %w", scheme, withoutURL(err))
	}
	return b, nil
}

// withoutURL leaves the text of the URL out of an error of net/url, since it may have a password.
func withoutURL(err error) error {
	if u, is := errors.AsType[*url.Error](err); is {
		return u.Err
	}
	return err
}
