//go:build unix

package postgres_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/postgres"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/child"
)

// transfersIn has a test process make transfers in the database with this URL until it is killed; unguarded has them
// made without a guard. Each transfer takes one from an account and notes it in another table, by reading the number
// and writing it in a transaction under a lock.
const (
	transfersIn = "MORTISE_TEST_TRANSFERS_IN"
	unguarded   = "MORTISE_TEST_UNGUARDED"
)

// transferLease is shorter than the processes are stopped for.
const transferLease = 150 * time.Millisecond

func transfer(url string) int {
	ctx := context.Background()
	locks, err := mortise.New(postgres.New(url))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var app *pgx.Conn
	once := func() error {
		if app == nil || app.IsClosed() {
			if app, err = pgx.Connect(ctx, url); err != nil {
				return err
			}
		}
		l, err := locks.Lock(ctx, "account", mortise.WithLease(transferLease), mortise.WithWait(time.Minute))
		if err != nil {
			return err
		}
		defer func() { _ = l.Unlock(ctx) }()
		return pgx.BeginFunc(ctx, app, func(tx pgx.Tx) error {
			var n int
			if err := tx.QueryRow(ctx, "select n from account").Scan(&n); err != nil {
				return err
			}
			<-time.After(rand.N(4 * time.Millisecond)) // the work, in which the process may be stopped
			if os.Getenv(unguarded) == "" {
				if err := postgres.Guard(ctx, tx, l); err != nil {
					return err
				}
			}
			<-time.After(rand.N(2 * time.Millisecond))
			if _, err := tx.Exec(ctx, "insert into transfers default values"); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "update account set n = $1", n+1)
			return err
		})
	}
	for {
		_ = once() // a transfer that fails is none: the tables tell how many there were
	}
}

// Processes transfer under a lock, and are stopped for longer than their leases, and killed. The row of the account
// counts the transfers that were not lost, and the table of transfers all that were committed.
func TestTransfers(t *testing.T) {
	check.Long(t)
	n, err := strconv.ParseInt(cmp.Or(os.Getenv("MORTISE_TRANSFERS"), "300"), 10, 64)
	check.NoError(t, err)
	for _, mode := range []string{"guarded", "unguarded"} {
		t.Run(mode, func(t *testing.T) {
			s := newStore(t)
			s.exec("create table account (n int)")
			s.exec("insert into account values (0)")
			s.exec("create table transfers (at timestamptz not null default clock_timestamp())")
			env := []string{transfersIn + "=" + server.URL(s.database)}
			if mode == "unguarded" {
				env = append(env, unguarded+"=1")
			}
			all := make([]*child.Process, 8)
			for i := range all {
				all[i] = child.Start(t, env...)
			}
			lost := func() int64 {
				return s.number("select (select count(*) from transfers) - (select n from account)")
			}
			stops, kills, most := 0, 0, n
			if mode == "unguarded" {
				most = 20 * n // until one is lost: a stop in fifteen hits the holder at its work
			}
			for made := int64(0); made < most; made = s.number("select count(*) from transfers") {
				i := rand.IntN(len(all))
				check.NoError(t, all[i].Process.Signal(syscall.SIGSTOP))
				stops++
				<-time.After(2 * transferLease)
				if stops%20 == 0 {
					all[i].Kill(t)
					all[i] = child.Start(t, env...)
					kills++
				} else {
					check.NoError(t, all[i].Process.Signal(syscall.SIGCONT))
				}
				if mode == "unguarded" && lost() > 0 {
					break
				}
			}
			for _, p := range all {
				p.Kill(t)
			}
			// What a killed process has sent may still be under way.
			for s.number("select count(*) from pg_stat_activity where datname = current_database() and xact_start is not null "+
				"and pid <> pg_backend_pid()") > 0 {
			}
			t.Logf("%s: %d transfers, %d lost updates; %d stops, %d kills", mode,
				s.number("select count(*) from transfers"), lost(), stops, kills)
			check.ErrorIf(t, mode == "guarded" && lost() != 0, "%d updates are lost", lost())
			check.ErrorIf(t, mode == "unguarded" && lost() == 0, "without a guard no update is lost: the test shows nothing")
		})
	}
}

// guardsIn has a test process guard n in the database with this URL, in a transaction that stays open.
const guardsIn = "MORTISE_TEST_GUARDS_IN"

func guards(url string) int {
	ctx := context.Background()
	locks, err := mortise.New(postgres.New(url), mortise.WithWatchdogTimeout(lease))
	if err == nil {
		err = func() error {
			l, err := locks.Lock(ctx, "n")
			if err != nil {
				return err
			}
			app, err := pgx.Connect(ctx, url)
			if err != nil {
				return err
			}
			tx, err := app.Begin(ctx)
			if err != nil {
				return err
			}
			return postgres.Guard(ctx, tx, l)
		}()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("guards")
	select {}
}

// A holder is stopped in a guarded transaction, with its connections open. ForceUnlock answers within its context, and
// the next owner gets in when the lease is over and the server has ended the idle session.
func TestAStoppedGuardDoesNotHoldForEver(t *testing.T) {
	check.Long(t)
	s := newStore(t)
	p := child.Start(t, guardsIn+"="+server.URL(s.database))
	p.Says(t, "guards")
	check.NoError(t, p.Process.Signal(syscall.SIGSTOP))
	began := time.Now()
	c := newClient(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := c.ForceUnlock(ctx, "n", "")
	check.Is(t, "ForceUnlock", err, context.DeadlineExceeded)
	answered := time.Since(began)
	l, err := c.Lock(t.Context(), "n", mortise.WithWait(time.Minute))
	check.NoError(t, err)
	in := time.Since(began)
	t.Logf("ForceUnlock answered after %v, the next owner got in after %v of a lease of %v", answered, in, lease)
	check.ErrorIf(t, answered > time.Second, "ForceUnlock answered after %v", answered)
	check.ErrorIf(t, in > lease+2*time.Second, "the next owner got in after %v", in)
	check.NoError(t, l.Unlock(t.Context()))
}
