package cas

import (
	"context"
	"errors"
	"strings"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// listing implements [backend.ListStore]. It lists the keys that are names, and then those that are hashes of names: a
// value has the name that its key has not.
type listing struct {
	*session
	driver Lister
}

// listed is how many values a page reads.
const listed = 200

// lister returns the list store of a session; nil if the driver cannot list.
func (x *session) lister() backend.ListStore {
	if d, can := x.driver.(Lister); can {
		return listing{x, d}
	}
	return nil
}

// A cursor is a letter for what is listed, and the last key.
const (
	inNames  = "n"
	inHashes = "h"
)

// List implements [backend.ListStore].
func (x listing) List(ctx context.Context, q backend.ListRequest) (page backend.ListPage, err error) {
	x.mu.Lock()
	err = x.refuses(ctx)
	x.mu.Unlock()
	if err != nil {
		return page, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer context.AfterFunc(x.ctx, cancel)()
	after, hashes := strings.CutPrefix(q.Cursor, inHashes)
	hashes = hashes || KeyOf(q.Prefix) != q.Prefix // no key begins so
	prefix := hashed
	if !hashes {
		prefix, after = q.Prefix, strings.TrimPrefix(after, inNames)
	}
	all, err := x.driver.List(ctx, prefix, after, listed)
	if err != nil {
		return page, err
	}
	for i := range all {
		k := &all[i]
		if !hashes && strings.HasPrefix(k.Key, hashed) {
			continue
		}
		n, err := decode(&k.Swapped)
		if errors.Is(err, backend.ErrWrongKind) {
			continue // another program's
		}
		if err != nil {
			return page, unreadable(err)
		}
		name := k.Key
		if hashes {
			name = n.Name
		}
		if one, is := n.Listed(x.step(n, name, nil, record.Moment(k.Now))); is && strings.HasPrefix(name, q.Prefix) {
			page.Locks = append(page.Locks, one)
		}
	}
	switch {
	case len(all) < listed && hashes:
	case len(all) < listed:
		page.Next = inHashes
	case hashes:
		page.Next = inHashes + all[listed-1].Key
	default:
		page.Next = inNames + all[listed-1].Key
	}
	return page, nil
}
