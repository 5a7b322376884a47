//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

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

// The example of the documentation. It panics at an error.
func TestTheExampleRuns(t *testing.T) {
	t.Setenv("DATABASE_URL", server.url(server.database(t)))
	ExampleNew()
}

func TestAURLNamesADatabase(t *testing.T) {
	locks, err := mortise.Open(server.url(server.database(t)))
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
