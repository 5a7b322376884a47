// Package asked marks the calls whose refusal is passed on at once, to a client of a server: for them the held cache
// does not refuse, the store is asked. The mark is a context, so that it passes through any Locker.
package asked

import "context"

type marked struct{ context.Context }

type key struct{}

// Context returns a child of ctx with the mark. All calls with the context, or one derived from it, have the mark.
func Context(ctx context.Context) context.Context { return marked{ctx} }

// Value implements [context.Context].
func (m marked) Value(k any) any {
	if k == (key{}) {
		return m
	}
	return m.Context.Value(k)
}

// Is reports whether ctx has the mark.
func Is(ctx context.Context) bool { return ctx.Value(key{}) != nil }
