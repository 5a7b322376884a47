//go:build unix

package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mortise-go/mortise/backend/postgres"
	"github.com/mortise-go/mortise/internal/redistest/beside"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/pg"
)

// ways are those of the table: PostgreSQL's advisory locks, which have a connection each while they are held or waited
// for, no lease and no token, and commit nothing; and mortise.
var ways = []beside.Way{
	{Name: "pg_advisory_lock", Open: openAdvisory},
	{Name: "mortise, PostgreSQL", Open: beside.Mortise(postgres.New)},
}

func openAdvisory(url string) (beside.Lock, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 40 // one for each goroutine
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, name string) (func() error, error) {
		c, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := c.Exec(ctx, "select pg_advisory_lock(hashtextextended($1, 0))", name); err != nil {
			c.Release()
			return nil, err
		}
		return func() error {
			defer c.Release()
			_, err := c.Exec(context.Background(), "select pg_advisory_unlock(hashtextextended($1, 0))", name)
			return err
		}, nil
	}, nil
}

// BenchmarkBeside is a part of `make bench-stores`. Commits are on disk when they are answered.
func BenchmarkBeside(b *testing.B) {
	started, err := pg.Start()
	check.NoError(b, err)
	s := &pgServer{Server: started}
	b.Cleanup(s.Stop)
	beside.Table(b, func() string { return s.URL(s.database(b)) }, ways...)
}
