//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/postgres"
)

// Migrate is for the deployment, by a role that may create tables; New for the service.
func ExampleNew() {
	ctx, url := context.Background(), os.Getenv("DATABASE_URL") // "postgres://shop@db.internal/shop"
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	if err := postgres.Migrate(ctx, pool); err != nil {
		panic(err)
	}

	locks, err := mortise.New(postgres.New(url))
	if err != nil {
		panic(err)
	}
	defer locks.Close()
	lease, err := locks.Lock(ctx, "orders:42", mortise.Fenced())
	if err != nil {
		panic(err)
	}
	fmt.Println("holds", lease.Name(), "with a token:", lease.Token() > 0)
	if err := lease.Unlock(ctx); err != nil {
		panic(err)
	}
}

// A transfer that commits only while no other owner got the lock, even if this process is paused in between.
func ExampleGuard() {
	ctx, url := context.Background(), os.Getenv("DATABASE_URL")
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	locks, err := mortise.New(postgres.New(url))
	if err != nil {
		panic(err)
	}
	defer locks.Close()

	lease, err := locks.Lock(ctx, "account:7")
	if err != nil {
		panic(err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var balance int
		if err := tx.QueryRow(ctx, "select balance from accounts where id = 7").Scan(&balance); err != nil {
			return err
		}
		if err := postgres.Guard(ctx, tx, lease); err != nil {
			return err // mortise.ErrLost: another owner may have got in
		}
		_, err := tx.Exec(ctx, "update accounts set balance = $1 where id = 7", balance-10)
		return err
	})
	if err := errors.Join(err, lease.Unlock(ctx)); err != nil {
		panic(err)
	}
}

// The example of the documentation. It panics at an error.
func TestTheExampleRuns(t *testing.T) {
	database := server.database(t)
	t.Setenv("DATABASE_URL", server.URL(database))
	ExampleNew()
	c := server.connect(t, database)
	if _, err := c.Exec(t.Context(), "create table accounts as select 7 as id, 50 as balance"); err != nil {
		t.Fatal(err)
	}
	ExampleGuard()
	var balance int
	if err := c.QueryRow(t.Context(), "select balance from accounts").Scan(&balance); err != nil || balance != 40 {
		t.Errorf("the balance is %d (%v), want 40", balance, err)
	}
}

func TestAURLNamesADatabase(t *testing.T) {
	locks, err := mortise.Open(server.URL(server.database(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	if err := mortise.Do(t.Context(), locks, "n", func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	_, err = mortise.Open("postgres://u:secret@host:port/db")
	if !errors.Is(err, mortise.ErrInvalid) || strings.Contains(err.Error(), "secret") {
		t.Errorf("a wrong URL: %v", err)
	}
}
