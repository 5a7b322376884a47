//go:build linux

package exclusion

import (
	"context"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/semaphore"
)

// The calls of the product whose form differs in the version before: product_older_test.go has the same functions for
// it. worker_test.go is compiled with either.

func onRenewal(told func(name string, took time.Duration)) mortise.Observer {
	return mortise.Observer{Renewed: func(e mortise.Event) { told(e.Name, e.Took) }}
}

func lockers(c *mortise.Client, fair bool) (plain, fenced, polls mortise.Locker, err error) {
	var kind mortise.Option
	if fair {
		kind = mortise.Fair()
	}
	return c.With(kind), c.With(kind, mortise.Fenced()),
		c.With(mortise.Polling(5*time.Millisecond), mortise.Fenced()), nil
}

func lockAll(ctx context.Context, l mortise.Locker, names []string, opts []mortise.Option) (*mortise.Lease, error) {
	return mortise.Parts{}.And(l, names...).Lock(ctx, opts...)
}

func tokenOf(l *mortise.Lease) int64 { return l.Token() }

func permit(ctx context.Context, c *mortise.Client, name string, opts []mortise.Option) (*semaphore.Permit, error) {
	return semaphore.New(c, name, 0).Acquire(ctx, 1, opts...)
}

func counting(c *mortise.Client, name string) slots { return semaphore.NewCounting(c, name) }
