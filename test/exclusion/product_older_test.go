//go:build older

package exclusion

import (
	"context"
	"time"

	"github.com/mortise-go/mortise"
)

// product_test.go for the version before: olderWorker compiles this file in its place.

func onRenewal(told func(name string, took time.Duration)) mortise.Observer {
	return mortise.Observer{Renewed: func(e mortise.RenewedEvent) { told(e.Name, e.Took) }}
}

func lockers(c *mortise.Client, fair bool) (plain, fenced, polls mortise.Locker, err error) {
	var kind mortise.LockerOption
	if fair {
		kind = mortise.Fair()
	}
	if plain, err = c.Locker(kind); err != nil {
		return nil, nil, nil, err
	}
	if fenced, err = c.Locker(kind, mortise.Fenced()); err != nil {
		return nil, nil, nil, err
	}
	polls, err = c.Locker(mortise.Polling(5*time.Millisecond), mortise.Fenced())
	return plain, fenced, polls, err
}

func lockAll(ctx context.Context, l mortise.Locker, names []string, opts []mortise.Option) (*mortise.Lease, error) {
	return mortise.LockAll(ctx, mortise.Parts(l, names...), opts...)
}

func tokenOf(l *mortise.Lease) int64 {
	token, _ := l.Token()
	return token
}

func permit(ctx context.Context, c *mortise.Client, name string, opts []mortise.Option) (*mortise.Permit, error) {
	return c.Semaphore(name).Acquire(ctx, opts...)
}

func counting(c *mortise.Client, name string) slots { return c.CountingSemaphore(name) }
