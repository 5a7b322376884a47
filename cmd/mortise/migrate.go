package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/mortise-go/mortise/backend/postgres"
)

func migrateCommand(s *settings) *cobra.Command {
	var show bool
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Create the tables of a store that needs some, PostgreSQL; it may be repeated",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
			defer cancel()
			if show {
				return postgres.Migrate(ctx, printed{c.OutOrStdout()})
			}
			if err := s.mayChange(); err != nil {
				return err
			}
			switch scheme, _, _ := strings.Cut(s.store, ":"); scheme {
			case "postgres", "postgresql":
				if err := migrate(ctx, s.store); err != nil {
					return err
				}
				fmt.Fprintf(c.OutOrStdout(), "%s\nthe tables are there\n", s.inForce())
			default:
				locks, err := s.client() // which refuses a URL that names no store
				if err != nil {
					return err
				}
				defer locks.Close()
				fmt.Fprintf(c.OutOrStdout(), "%s\nthis store needs no tables\n", s.inForce())
			}
			return nil
		},
	}
	c.Flags().BoolVar(&show, "print", false, "print the statements for PostgreSQL, and carry out nothing")
	return c
}

// migrate creates the tables in a database.
func migrate(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return &coded{codeUsage, errors.New("pgx does not understand the URL of the store")} // its error has the URL
	}
	defer pool.Close()
	err = postgres.Migrate(ctx, pool)
	var said *pgconn.PgError
	switch {
	case errors.As(err, &said) && said.Code == "42501":
		return &coded{codeNoPermission, err}
	case err != nil:
		return &coded{codeUnavailable, err}
	}
	return nil
}

// printed has statements printed instead of carried out.
type printed struct{ io.Writer }

// Exec implements [postgres.Execer].
func (p printed) Exec(_ context.Context, statements string, _ ...any) (pgconn.CommandTag, error) {
	_, err := fmt.Fprintln(p, strings.TrimSpace(statements))
	return pgconn.CommandTag{}, err
}
