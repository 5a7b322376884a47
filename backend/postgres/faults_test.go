//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/postgres"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/child"
)

// holderOf has a test process hold a lock of the database with this URL until it is killed.
const holderOf = "MORTISE_TEST_HOLDER_OF"

// lease is that of a holder that dies.
const lease = 2 * time.Second

// hold holds n until the process is killed.
func hold(url string) int {
	c, err := mortise.New(postgres.New(url), mortise.WithWatchdogTimeout(lease))
	if err == nil {
		_, err = c.Lock(context.Background(), "n")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("holds")
	select {}
}

// killedHolder starts a process that holds n, and kills it.
func killedHolder(t *testing.T, url string) {
	t.Helper()
	p := child.Start(t, holderOf+"="+url)
	p.Says(t, "holds")
	p.Kill(t)
}

// A client that waits gets the lock of a killed process when its lease is over.
func TestAKilledHoldersLockIsFreeWithItsLease(t *testing.T) {
	check.Long(t)
	s := newStore(t)
	killedHolder(t, s.url())
	c, err := mortise.New(s.Backend())
	check.NoError(t, err)
	began := time.Now()
	l, err := c.Lock(t.Context(), "n", mortise.WithWait(time.Minute))
	check.NoError(t, err)
	d := time.Since(began)
	check.ErrorIf(t, d > lease+time.Second, "a client that waited got it after %v of a lease of %v", d, lease)
	check.NoError(t, l.Unlock(t.Context()))
	check.NoError(t, c.Shutdown(t.Context()))
}

// A new client each time, which asks once, gets in, too.
func TestAKilledHoldersLockIsFreeForThoseThatAskOnce(t *testing.T) {
	check.Long(t)
	s := newStore(t)
	killedHolder(t, s.url())
	for began := time.Now(); ; {
		c, err := mortise.New(s.Backend())
		check.NoError(t, err)
		l, err := c.TryLock(t.Context(), "n")
		if err == nil {
			check.NoError(t, l.Unlock(t.Context()))
		}
		check.NoError(t, c.Shutdown(t.Context()))
		if err == nil {
			return
		}
		check.FatalIf(t, !errors.Is(err, mortise.ErrNotAcquired), "TryLock: %v", err)
		d := time.Since(began)
		check.FatalIf(t, d > 2*lease, "not in after %v of a lease of %v", d, lease)
	}
}

// A holder whose connections the server ends holds on, and nobody else gets in.
func TestAHolderKeepsItsLockWithoutItsConnections(t *testing.T) {
	s := newStore(t)
	a, err := mortise.New(s.Backend())
	check.NoError(t, err)
	b, err := mortise.New(s.Backend())
	check.NoError(t, err)
	l, err := a.Lock(t.Context(), "n")
	check.NoError(t, err)
	waits := make(chan error, 1)
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		_, err := b.Lock(ctx, "n")
		waits <- err
	}()
	for range 5 {
		s.exec("select pg_terminate_backend(pid) from pg_stat_activity where datname = $1 and pid <> pg_backend_pid()",
			s.database)
		info, err := a.Inspect(t.Context(), "n")
		if err == nil {
			check.ErrorIf(t, !info.Held || !info.Mine, "the record is %+v", info)
		}
	}
	check.NoError(t, l.Err())
	leave()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("another client's Lock: %v, want that it was left", err)
	}
	check.NoError(t, l.Unlock(t.Context()))
	again, err := b.Lock(t.Context(), "n", mortise.WithWait(20*time.Second))
	check.NoError(t, err)
	check.NoError(t, again.Unlock(t.Context()))
	check.NoError(t, a.Shutdown(t.Context()))
	check.NoError(t, b.Shutdown(t.Context()))
}
