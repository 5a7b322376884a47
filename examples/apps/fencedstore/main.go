// Fencedstore is a SQL table that refuses writes of a holder that lost its lock without noticing: each
// write carries the lease's fencing token, and the table remembers the largest it has seen.
//
//	go run -C examples/apps/fencedstore .
//	go run -C examples/apps/fencedstore . -redis 127.0.0.1:6379
//
// The locks are in memory, or on a Redis, where one key is left, the token's counter; the table is
// an SQLite database in memory. It exits with 1 if a stale write got through.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/redisgo"
)

func main() {
	addr := flag.String("redis", "", "`address` of a Redis, such as 127.0.0.1:6379; without it the locks are in memory")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *addr, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fencedstore:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, addr string, out io.Writer) error {
	var store backend.Backend = memory.New()
	if addr != "" {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		defer rdb.Close()
		store = redisgo.New(rdb)
	}
	accounts, err := OpenAccounts(ctx, "acme", 100)
	if err != nil {
		return err
	}
	defer accounts.Close()
	slow, err := open(store)
	if err != nil {
		return err
	}
	defer slow.close()
	quick, err := open(store)
	if err != nil {
		return err
	}
	defer quick.close()

	// A writer takes the lock, reads, and is stopped: by its garbage collector, its
	// hypervisor, its operator. Here it takes a lease that is not renewed, and sleeps.
	lease, err := slow.locks.Lock(ctx, "accounts:acme", mortise.WithLease(3*time.Second))
	if err != nil {
		return err
	}
	token := lease.Token()
	balance, err := accounts.Balance(ctx, "acme")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "slow   holds the lock with token %d and reads %d; then it is stopped\n", token, balance)

	// Its lease runs out, and another writer gets the lock. Both believe to hold it.
	if err := quick.withdraw(ctx, out, "quick", accounts, 30); err != nil {
		return err
	}

	// The first wakes up in the middle of its work and writes what it computed from an old balance.
	err = accounts.Set(ctx, "acme", balance-50, token)
	fmt.Fprintf(out, "slow   wakes up and writes %d with token %d: %v\n", balance-50, token, err)
	if !errors.Is(err, ErrStale) {
		return fmt.Errorf("the table took a stale write")
	}
	fmt.Fprintf(out, "slow   asks its lease: %v\n", lease.Err())

	// So it starts over.
	if err := slow.withdraw(ctx, out, "slow", accounts, 50); err != nil {
		return err
	}
	switch balance, err = accounts.Balance(ctx, "acme"); {
	case err != nil:
		return err
	case balance != 20:
		return fmt.Errorf("the balance is %d, want 20: a withdrawal was lost", balance)
	}
	fmt.Fprintln(out, "the balance is 20, both withdrawals count")
	return nil
}

// writer is a process that takes locks.
type writer struct {
	client *mortise.Client
	locks  mortise.Locker
}

func open(store backend.Backend) (*writer, error) {
	client, err := mortise.New(store)
	if err != nil {
		return nil, err
	}
	locks := client.With(mortise.Fenced())
	return &writer{client, locks}, nil
}

func (w *writer) close() { w.client.Close() }

// withdraw takes the lock, reads, computes and writes.
func (w *writer) withdraw(ctx context.Context, out io.Writer, who string, accounts *Accounts, amount int) error {
	lease, err := w.locks.Lock(ctx, "accounts:acme")
	if err != nil {
		return err
	}
	defer lease.Unlock(context.WithoutCancel(ctx))
	token := lease.Token()
	balance, err := accounts.Balance(lease.Context(), "acme")
	if err != nil {
		return err
	}
	if err := accounts.Set(lease.Context(), "acme", balance-amount, token); err != nil {
		return err
	}
	fmt.Fprintf(out, "%-6s holds the lock with token %d, reads %d and writes %d\n", who, token, balance, balance-amount)
	return nil
}
