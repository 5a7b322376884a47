//go:build linux || darwin

package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/sqlite"
	"github.com/mortise-go/mortise/internal/redistest/beside"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/child"
)

// Test processes on the file that is the first variable's: one that holds n until it is killed, or one that takes and
// releases n, and makes a file inside, the second variable's.
const (
	holderOf = "MORTISE_TEST_HOLDER_OF"
	workerOf = "MORTISE_TEST_WORKER_OF"
	inside   = "MORTISE_TEST_INSIDE"
)

// lease is that of a holder that is killed or stopped.
const lease = 2 * time.Second

// rounds is how often a worker takes the lock.
const rounds = 40

func TestMain(m *testing.M) {
	beside.Worker(ways...)
	var err error
	switch path := os.Getenv(holderOf) + os.Getenv(workerOf); {
	case os.Getenv(holderOf) != "":
		err = hold(path)
	case os.Getenv(workerOf) != "":
		err = work(path, os.Getenv(inside))
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func hold(path string) error {
	c, err := mortise.New(sqlite.New(path), mortise.WithWatchdogTimeout(lease))
	if err != nil {
		return err
	}
	l, err := c.Lock(context.Background(), "n")
	if err != nil {
		return err
	}
	fmt.Println("holds")
	<-l.Context().Done()
	fmt.Println("lost:", errors.Is(l.Err(), mortise.ErrLost))
	select {}
}

// work takes n, and fails if another process is inside.
func work(path, inside string) error {
	ctx := context.Background()
	c, err := mortise.New(sqlite.New(path))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := io.ReadAll(os.Stdin); err != nil { // until all are ready
		return err
	}
	for range rounds {
		l, err := c.Lock(ctx, "n")
		if err != nil {
			return err
		}
		f, err := os.OpenFile(inside, os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("another process is inside: %w", err)
		}
		<-time.After(time.Millisecond)
		if err := errors.Join(f.Close(), os.Remove(inside), l.Unlock(ctx)); err != nil {
			return err
		}
		fmt.Println("done")
	}
	return c.Shutdown(ctx)
}

// A killed process's lock is free for one that waits.
func TestAKilledHoldersLockIsFree(t *testing.T) {
	check.Long(t)
	s := newStore(t)
	p := child.Start(t, holderOf+"="+s.path())
	p.Says(t, "holds")
	p.Kill(t)
	killed := time.Now()
	l, err := client(t, s.path()).Lock(t.Context(), "n", mortise.WithWait(time.Minute))
	check.NoError(t, err)
	t.Logf("free %v after the end of its holder, whose lease was %v", time.Since(killed), lease)
	check.NoError(t, l.Unlock(t.Context()))
}

// A killed process's lock is free for clients that ask once, too.
func TestAKilledHoldersLockIsFreeForClientsThatAskOnce(t *testing.T) {
	check.Long(t)
	s := newStore(t)
	p := child.Start(t, holderOf+"="+s.path())
	p.Says(t, "holds")
	p.Kill(t)
	eventually(t, "a new client gets the lock", func() bool {
		c, err := mortise.New(sqlite.New(s.path()))
		check.NoError(t, err)
		l, err := c.TryLock(t.Context(), "n")
		if err == nil {
			check.NoError(t, l.Unlock(t.Context()))
		} else if !errors.Is(err, mortise.ErrNotAcquired) {
			t.Fatal(err)
		}
		check.NoError(t, c.Shutdown(t.Context()))
		return err == nil
	})
}

// A stopped holder loses its lock, and knows it when it goes on.
func TestAStoppedHolderLosesItsLock(t *testing.T) {
	check.Long(t)
	s := newStore(t)
	p := child.Start(t, holderOf+"="+s.path())
	p.Says(t, "holds")
	unlock := s.inTransaction() // so the process is in none
	check.NoError(t, p.Process.Signal(syscall.SIGSTOP))
	_, err := syscall.Wait4(p.Process.Pid, nil, syscall.WUNTRACED, nil)
	check.NoError(t, err)
	unlock()
	l, err := client(t, s.path()).Lock(t.Context(), "n", mortise.WithWait(time.Minute))
	check.NoError(t, err)
	check.NoError(t, p.Process.Signal(syscall.SIGCONT))
	p.Says(t, "lost: true")
	check.NoError(t, l.Err())
	check.NoError(t, l.Unlock(t.Context()))
}

// Eight processes are never two inside; each gets in as often as it asks.
func TestEightProcessesExcludeEachOther(t *testing.T) {
	check.Long(t)
	s := newStore(t)
	var all []*child.Process
	for range 8 {
		all = append(all, child.Start(t, workerOf+"="+s.path(), inside+"="+s.path()+".inside"))
	}
	for _, p := range all {
		p.Says(t, "ready")
	}
	for _, p := range all {
		check.NoError(t, p.In.Close())
	}
	for _, p := range all {
		for range rounds {
			p.Says(t, "done")
		}
	}
	for _, p := range all {
		check.NoError(t, p.Wait())
	}
}
