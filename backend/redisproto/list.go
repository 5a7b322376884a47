package redisproto

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/mortise-go/mortise/backend"
)

// listing implements [backend.ListStore]: SCAN, on one master after the other, and the script describe for each key
// that may be a lock. Each master is scanned twice: for hashes, which locks are, and for sorted sets, since a semaphore
// has one of the permits in use.
type listing struct {
	*core
	asker Asker
}

const (
	// scanned is how many buckets of the keyspace a SCAN looks at.
	scanned = 1000
	// describing is how many scripts of a page are under way at once.
	describing = 16
)

// List implements [backend.ListStore].
func (s listing) List(ctx context.Context, r backend.ListRequest) (page backend.ListPage, err error) {
	if err := s.ready(ctx); err != nil {
		return page, err
	}
	at, err := s.begin(ctx, r.Cursor)
	if err != nil {
		return page, err
	}
	pattern, kind := escapedGlob(r.Prefix)+"*", "hash"
	if at.sets {
		pattern, kind = "*"+pattern+permitsSuffix, "zset"
	}
	count := strconv.Itoa(scanned)
	reply, err := s.asker.Ask(ctx, at.node, "scan", at.scan, "match", pattern, "count", count, "type", kind)
	if errors.Is(err, ErrNoNode) {
		return page, &backend.Fault{Err: err, Temporary: true, Remedy: "list again"}
	}
	if err != nil {
		return page, s.fault(err)
	}
	next, keys, ok := scan(reply)
	if !ok {
		return page, strange("scan", reply)
	}
	if page.Locks, err = s.locks(ctx, at, at.names(keys, r.Prefix)); err != nil {
		return page, err
	}
	at.scan = next
	page.Next, err = s.next(ctx, at)
	return page, err
}

// place is where a listing is: on a node, among its hashes or its sorted sets, at a cursor of SCAN.
type place struct {
	node string
	sets bool
	scan string
}

// begin returns the place of a cursor.
func (s listing) begin(ctx context.Context, cursor string) (place, error) {
	if cursor == "" {
		nodes, err := s.nodeNames(ctx)
		if err != nil {
			return place{}, err
		}
		return place{node: nodes[0], scan: "0"}, nil
	}
	words := strings.SplitN(cursor, " ", 3)
	if len(words) != 3 {
		err := fmt.Errorf("no cursor of a listing: %q", cursor)
		return place{}, &backend.Fault{Err: err, Remedy: "list from the beginning"}
	}
	return place{sets: words[0] == "s", scan: words[1], node: words[2]}, nil
}

// next returns the cursor of the next place; empty if there is none. At.scan is the reply's.
func (s listing) next(ctx context.Context, at place) (string, error) {
	switch {
	case at.scan != "0":
	case !at.sets:
		at.sets = true
	default:
		nodes, err := s.nodeNames(ctx)
		if err != nil {
			return "", err
		}
		i, is := slices.BinarySearch(nodes, at.node)
		if is {
			i++
		}
		if i >= len(nodes) {
			return "", nil
		}
		at = place{node: nodes[i], scan: "0"}
	}
	what := "h"
	if at.sets {
		what = "s"
	}
	return what + " " + at.scan + " " + at.node, nil
}

// nodeNames returns the addresses of the masters in order; for a single server one, which is empty.
func (s listing) nodeNames(ctx context.Context) (names []string, err error) {
	if !s.adapter.Features().Cluster {
		return []string{""}, nil
	}
	nodes, err := checks{s.core}.masters(ctx, s.asker)
	for _, n := range nodes {
		names = append(names, n.addr)
	}
	slices.Sort(names)
	return names, err
}

// permitsSuffix ends the key of the permits in use of a semaphore.
const permitsSuffix = ":timeout"

// names returns the names that may have the keys of a page, each once.
func (at place) names(keys []string, prefix string) (names []string) {
	add := func(name string) {
		if strings.HasPrefix(name, prefix) && nameable(name) {
			names = append(names, name)
		}
	}
	for _, key := range keys {
		if !at.sets {
			add(key)
			continue
		}
		key = strings.TrimSuffix(key, permitsSuffix) // a name that has braces, or one in braces
		add(key)
		if bare := strings.TrimSuffix(strings.TrimPrefix(key, "{"), "}"); tagged("", bare) == key {
			add(bare)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// nameable reports whether a key can be the name of a lock. The keys of scripts can not.
func nameable(key string) bool {
	if strings.HasPrefix(key, "mortise:1:") || !utf8.ValidString(key) {
		return false
	}
	before, after, braces := strings.Cut(key, "{")
	if !braces {
		return !strings.Contains(before, "}")
	}
	return strings.Index(after, "}") > 0
}

// escapedGlob returns a pattern that matches a text.
func escapedGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(text)
}

// scan decodes a reply of SCAN.
func scan(reply any) (next string, keys []string, ok bool) {
	parts, is := reply.([]any)
	if !is || len(parts) != 2 {
		return "", nil, false
	}
	all, is := parts[1].([]any)
	if next, ok = parts[0].(string); !ok || !is {
		return "", nil, false
	}
	for _, x := range all {
		key, is := x.(string)
		if !is {
			return "", nil, false
		}
		keys = append(keys, key)
	}
	return next, keys, true
}

// locks describes names, and returns those that are locks.
func (s listing) locks(ctx context.Context, at place, names []string) (locks []backend.Listed, err error) {
	found := make([]*backend.Description, len(names))
	errs := make([]error, len(names))
	next := make(chan int)
	var all sync.WaitGroup
	for range min(describing, len(names)) {
		all.Go(func() {
			for i := range next {
				found[i], errs[i] = s.lock(ctx, at, names[i])
			}
		})
	}
	for i := range names {
		next <- i
	}
	close(next)
	all.Wait()
	for i, d := range found {
		if errs[i] != nil {
			return nil, errs[i]
		}
		if d != nil {
			locks = append(locks, backend.Listed{Name: names[i], Description: *d})
		}
	}
	return locks, nil
}

// lock describes a name; nil if it is no lock, or a count that the user may not read: a user for locks needs no
// permission for semaphores. The server tracks none of these keys, if the client can.
func (s listing) lock(ctx context.Context, at place, name string) (*backend.Description, error) {
	k, a := DescribeKeys{Lock: name}, DescribeArgs{Entries: 0}
	c, beside := s.second.Commands()
	reply, err := c.Describe(ctx, k, a)
	if beside && failed[[]string](s.core, err) {
		reply, err = s.adapter.Describe(ctx, k, a)
	}
	if err != nil {
		f := backend.FaultOf(s.fault(err))
		if errors.Is(&f, backend.ErrWrongKind) || at.sets && s.forbidden(err) {
			return nil, nil
		}
		return nil, &f
	}
	d, fields, ok := described(reply)
	if !ok {
		return nil, strange("describe", reply)
	}
	if d.Kind == backend.KindCountingSemaphore || !d.Exists || !looksHeld(d.Kind, fields) {
		return nil, nil
	}
	return &d, nil
}

// forbidden reports whether an error says that the user lacks a permission.
func (s listing) forbidden(err error) bool {
	text, replied := s.adapter.ServerError(err)
	r, _ := replyOf(text)
	return replied && r != nil && r.permission
}

// looksHeld reports whether what describe has read looks like a lock, and not like other data: each field of the hash
// is an owner with a count, as here and in Redisson, or a reservation.
func looksHeld(k backend.Kind, fields []string) bool {
	if k == backend.KindSemaphore {
		return true
	}
	for i := 0; i < len(fields); i += 2 {
		if strings.HasPrefix(fields[i], "mortise:reserved:") {
			continue
		}
		owner := strings.TrimSuffix(fields[i], ":write")
		at := strings.LastIndexByte(owner, ':')
		holds, err := strconv.Atoi(fields[i+1])
		if _, number := strconv.ParseUint(strings.TrimPrefix(owner[at+1:], "+"), 10, 64); at < 1 || number != nil ||
			err != nil || holds < 1 {
			return false
		}
	}
	return len(fields) > 0
}

// lister returns the list store of a session; nil if its adapter cannot ask each master.
func lister(s *core) backend.ListStore {
	if asker, can := s.adapter.(Asker); can {
		return listing{s, asker}
	}
	return nil
}
