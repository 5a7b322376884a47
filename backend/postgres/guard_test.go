//go:build unix

package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/postgres"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// newClient makes a client that is closed with the test.
func newClient(t *testing.T, s *store, with ...mortise.ClientOption) *mortise.Client {
	t.Helper()
	c, err := mortise.New(s.Backend(), with...)
	check.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// begin begins a transaction of an application, which is rolled back with the test.
func begin(t *testing.T, s *store) pgx.Tx {
	t.Helper()
	tx, err := server.connect(t, s.database).Begin(t.Context())
	check.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// number returns the result of a query.
func (s *store) number(query string) (n int64) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.past.QueryRow(context.Background(), query).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// tries waits until clients have tried n more writes, or done ends. Each write takes a version.
func (s *store) tries(n int64, done <-chan struct{}) {
	const last = "select last_value from mortise_versions"
	for most := s.number(last) + n; s.number(last) < most; {
		select {
		case <-done:
			return
		default:
		}
	}
}

// A holder reads a number, and pauses before its commit. Another client frees the lock, takes it, and adds one.
// Nothing but a guard that locks the owner prevents that one of both updates is lost.
func TestAGuardPreventsALostUpdate(t *testing.T) {
	reads := func(ctx context.Context, tx pgx.Tx, l *mortise.Lease) error {
		var one int
		return tx.QueryRow(ctx, "select 1 from mortise_names where key = $1 and owner = $2", l.Name(), l.Owner()).Scan(&one)
	}
	for name, x := range map[string]struct {
		guard func(context.Context, pgx.Tx, *mortise.Lease) error
		lost  int64
	}{
		"none": {func(context.Context, pgx.Tx, *mortise.Lease) error { return nil }, 1},
		// Broken on purpose.
		"one that reads": {reads, 1},
		"Guard":          {postgres.Guard, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			s.exec("create table account (n int)")
			s.exec("insert into account values (0)")
			a, b := newClient(t, s), newClient(t, s)
			add := func(c *mortise.Client, between func(pgx.Tx, *mortise.Lease) error) error {
				l, err := c.Lock(t.Context(), "n")
				if err != nil {
					return err
				}
				tx := begin(t, s)
				var n int
				if err := tx.QueryRow(t.Context(), "select n from account").Scan(&n); err != nil {
					return err
				}
				if err := between(tx, l); err != nil {
					return err
				}
				if _, err := tx.Exec(t.Context(), "update account set n = $1", n+1); err != nil {
					return err
				}
				err = tx.Commit(t.Context())
				if lost := l.Unlock(t.Context()); !errors.Is(lost, mortise.ErrLost) {
					err = errors.Join(err, lost)
				}
				return err
			}
			done := make(chan struct{})
			var other error
			check.NoError(t, add(a, func(tx pgx.Tx, l *mortise.Lease) error {
				if err := x.guard(t.Context(), tx, l); err != nil {
					return err
				}
				go func() {
					defer close(done)
					if _, other = b.ForceUnlock(t.Context(), "n", l.Owner()); other == nil {
						other = add(b, func(pgx.Tx, *mortise.Lease) error { return nil })
					}
				}()
				s.tries(5, done)
				if x.lost > 0 {
					<-done
				}
				return nil
			}))
			<-done
			check.NoError(t, other)
			check.Equal(t, "%d updates are lost", 2-s.number("select n from account"), x.lost)
		})
	}
}

// After another owner got in, Guard is ErrLost, and the transaction cannot commit.
func TestGuardOfALostLock(t *testing.T) {
	s := newStore(t)
	a, b := newClient(t, s), newClient(t, s)
	for name, guard := range map[string]func(*mortise.Lease) (guarded, committed error){
		"pgx": func(l *mortise.Lease) (error, error) {
			tx := begin(t, s)
			err := postgres.Guard(t.Context(), tx, l)
			return err, tx.Commit(t.Context())
		},
		"database/sql": func(l *mortise.Lease) (error, error) {
			db, err := sql.Open("pgx", server.URL(s.database))
			check.NoError(t, err)
			defer db.Close()
			tx, err := db.BeginTx(t.Context(), nil)
			check.NoError(t, err)
			err = postgres.GuardSQL(t.Context(), tx, l)
			return err, tx.Commit()
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, then := range []string{"nobody", "another owner"} {
				l, err := a.Lock(t.Context(), name)
				check.NoError(t, err)
				guarded, committed := guard(l)
				check.NoError(t, errors.Join(guarded, committed))
				_, err = b.ForceUnlock(t.Context(), name, l.Owner())
				check.NoError(t, err)
				if then == "another owner" {
					other, err := b.Lock(t.Context(), name)
					check.NoError(t, err)
					defer func() { check.NoError(t, other.Unlock(t.Context())) }()
				}
				guarded, committed = guard(l)
				check.Is(t, then+": Guard", guarded, mortise.ErrLost)
				check.ErrorIf(t, committed == nil, "%s: the transaction was committed", then)
				_ = l.Unlock(t.Context())
			}
		})
	}
	l, err := a.Lock(t.Context(), "released")
	check.NoError(t, err)
	check.NoError(t, l.Unlock(t.Context()))
	check.Is(t, "after Unlock", postgres.Guard(t.Context(), begin(t, s), l), mortise.ErrReleased)
	r, err := a.RW().Write.Lock(t.Context(), "sides")
	check.NoError(t, err)
	check.Is(t, "of a side", postgres.Guard(t.Context(), begin(t, s), r), mortise.ErrLost)
	check.NoError(t, r.Unlock(t.Context()))
	check.ErrorIf(t, postgres.Guard(t.Context(), begin(t, s), nil) == nil, "Guard of a nil lease is no error")
	l, err = a.Lock(t.Context(), "elsewhere")
	check.NoError(t, err)
	elsewhere := newStore(t)
	check.Is(t, "in another database", postgres.Guard(t.Context(), begin(t, elsewhere), l), mortise.ErrLost)
	check.NoError(t, l.Unlock(t.Context()))
}

// While two transactions guard two names in opposite orders, and releases of both wait for them, the leases are
// renewed, and other names are locked and released by the clients whose releases wait.
func TestAGuardHoldsUpNoOtherName(t *testing.T) {
	check.Long(t) // it awaits renewals
	s := newStore(t)
	a, b := newClient(t, s, mortise.WithWatchdogTimeout(2*time.Second)), newClient(t, s)
	var leases []*mortise.Lease
	for _, name := range []string{"n1", "n2"} {
		l, err := a.Lock(t.Context(), name)
		check.NoError(t, err)
		leases = append(leases, l)
	}
	txs := []pgx.Tx{begin(t, s), begin(t, s)}
	for i := range 2 {
		check.NoError(t, postgres.Guard(t.Context(), txs[i], leases[i]))
	}
	for i := range 2 {
		check.NoError(t, postgres.Guard(t.Context(), txs[i], leases[1-i]))
	}
	for _, l := range leases { // a renewal writes a version
		of := fmt.Sprintf("select version from mortise_names where key = '%s'", l.Name())
		for was := s.number(of); s.number(of) == was; {
			check.NoError(t, l.Err())
			check.NoError(t, txs[0].Conn().Ping(t.Context())) // the transactions are not idle for a lease
			check.NoError(t, txs[1].Conn().Ping(t.Context()))
		}
	}
	ctx, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, l := range leases {
		all.Go(func() {
			_, err := b.ForceUnlock(ctx, l.Name(), l.Owner())
			if !errors.Is(err, context.Canceled) {
				t.Errorf("ForceUnlock of a guarded lock that was left: %v", err)
			}
		})
	}
	s.tries(6, nil)
	for i := range 200 {
		check.NoError(t, mortise.Do(t.Context(), b, fmt.Sprint("other", i%20), func(context.Context) error { return nil }))
		check.NoError(t, txs[i%2].Conn().Ping(t.Context()))
	}
	check.Equal(t, "%d of the guarded locks have their owner",
		s.number("select count(*) from mortise_names where owner is not null"), 2)
	leave() // and ForceUnlock answers
	all.Wait()
	for _, tx := range txs {
		check.NoError(t, tx.Commit(t.Context()))
	}
	for _, name := range []string{"n1", "n2"} { // what was left is carried out
		l, err := b.Lock(t.Context(), name, mortise.WithWait(time.Minute))
		check.NoError(t, err)
		check.NoError(t, l.Unlock(t.Context()))
	}
}

// The server ends a session that is idle in a guarded transaction for what was left of the lease, or for as long as
// the application wants, if that is less.
func TestAGuardedTransactionIsNotIdleForEver(t *testing.T) {
	s := newStore(t)
	l, err := newClient(t, s).Lock(t.Context(), "n", mortise.WithLease(30*time.Second))
	check.NoError(t, err)
	const timeout = "select setting::bigint from pg_settings where name = 'idle_in_transaction_session_timeout'"
	for _, c := range []struct {
		set         string
		least, most int64
	}{{"0", 1, 30_000}, {"10min", 1, 30_000}, {"7s", 7000, 7000}} {
		tx := begin(t, s)
		var got int64
		b := &pgx.Batch{}
		b.Queue("set local idle_in_transaction_session_timeout = '" + c.set + "'")
		b.Queue(postgres.Statements["guard"], "n", l.Owner(), int64(30_000))
		b.Queue(timeout).QueryRow(func(row pgx.Row) error { return row.Scan(&got) })
		check.NoError(t, tx.SendBatch(t.Context(), b).Close())
		check.ErrorIf(t, got < c.least || got > c.most, "with %s it is %d ms", c.set, got)
		check.NoError(t, tx.Rollback(t.Context()))
	}
	tx := begin(t, s)
	check.NoError(t, postgres.Guard(t.Context(), tx, l))
	var got int64
	check.NoError(t, tx.QueryRow(t.Context(), timeout).Scan(&got))
	check.ErrorIf(t, got < 1 || got > 30_000, "Guard sets %d ms of a lease of 30 s", got)
	check.NoError(t, tx.Commit(t.Context()))
	check.NoError(t, l.Unlock(t.Context()))
}

// Guard is for plain, fenced and fair locks, under any name, by a role that may lock rows, in any isolation.
func TestWhatGuardIsFor(t *testing.T) {
	s := newStore(t)
	s.exec("create role guard_only login")
	t.Cleanup(func() { s.exec("drop owned by guard_only"); s.exec("drop role guard_only") })
	s.exec("grant select, update (stamp) on mortise_names to guard_only")
	c, other := newClient(t, s, mortise.WithPrefix("shop:")), newClient(t, s)
	for what, lock := range map[string]struct {
		name  string
		opts  []mortise.Option
		level pgx.TxIsoLevel
	}{
		"plain":               {name: "plain", level: pgx.RepeatableRead},
		"fenced":              {name: "fenced", opts: []mortise.Option{mortise.Fenced()}, level: pgx.Serializable},
		"fair":                {name: "fair", opts: []mortise.Option{mortise.Fair()}},
		"a name that is long": {name: strings.Repeat("n", 250)},
	} {
		t.Run(what, func(t *testing.T) {
			l, err := c.Lock(t.Context(), lock.name, lock.opts...)
			check.NoError(t, err)
			tx, err := server.connect(t, s.database).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: lock.level})
			check.NoError(t, err)
			_, err = tx.Exec(t.Context(), "set local role guard_only")
			check.NoError(t, err)
			check.NoError(t, postgres.Guard(t.Context(), tx, l))
			ctx, leave := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, err = other.ForceUnlock(ctx, l.Name(), l.Owner())
			}()
			s.tries(3, done)
			leave()
			<-done
			check.Is(t, "ForceUnlock of a guarded lock", err, context.Canceled)
			check.NoError(t, tx.Commit(t.Context()))
			_ = l.Unlock(t.Context())
		})
	}
}
