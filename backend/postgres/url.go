package postgres

import (
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mortise-go/mortise/backend"
)

func init() {
	for _, scheme := range []string{"postgres", "postgresql"} {
		backend.Register(scheme, func(address string) (backend.Backend, error) {
			if _, err := pgxpool.ParseConfig(address); err != nil {
				return nil, errors.New("pgx does not understand it") // its error has the URL
			}
			return New(address), nil
		})
	}
}
