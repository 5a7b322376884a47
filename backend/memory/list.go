package memory

import (
	"context"
	"slices"
	"strings"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// listing implements [backend.ListStore].
type listing struct{ *client }

// listed is how many locks a page has.
const listed = 1000

// List implements [backend.ListStore], in the order of names. A cursor is a name.
func (x listing) List(ctx context.Context, q backend.ListRequest) (page backend.ListPage, err error) {
	if err := x.Lock(ctx); err != nil {
		return page, err
	}
	defer x.Unlock()
	s := x.store
	var names []string
	for name := range s.names {
		if name > q.Cursor && strings.HasPrefix(name, q.Prefix) {
			if names = append(names, name); len(names) == 2*listed {
				names = first(names)
			}
		}
	}
	if names = first(names); len(names) == listed {
		page.Next = names[listed-1]
	}
	for _, name := range names {
		s.run(name, func(n *record.Name, st *record.Step) {
			if one, is := n.Listed(st); is {
				page.Locks = append(page.Locks, one)
			}
		})
	}
	return page, nil
}

// first returns the first names of a page.
func first(names []string) []string {
	slices.Sort(names)
	return names[:min(len(names), listed)]
}
