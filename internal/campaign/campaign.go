// Package campaign marks the locks that package leader takes: it repeats those that fail, so their client logs the
// failures. The mark is a context, so that it passes through any Locker.
package campaign

import "context"

type marked struct {
	context.Context
	on bool
}

type key struct{}

// Context returns a child of ctx with the mark. All calls with the context, or one derived from it, have the mark.
func Context(ctx context.Context) context.Context { return marked{ctx, true} }

// Won returns a child of ctx, the context of a leader's lease, without the mark.
func Won(ctx context.Context) context.Context { return marked{ctx, false} }

// Value implements [context.Context].
func (m marked) Value(k any) any {
	if k == (key{}) {
		return m.on
	}
	return m.Context.Value(k)
}

// Is reports whether ctx has the mark.
func Is(ctx context.Context) bool {
	on, _ := ctx.Value(key{}).(bool)
	return on
}
