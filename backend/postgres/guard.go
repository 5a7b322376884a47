package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/cas"
)

// errGuard is the SQLSTATE that mortise_guard raises if the name has another owner, or none.
const errGuard = "MO001"

// Guard has a transaction commit only while no other owner got the lock: from Guard to the end of the transaction the
// lock cannot be granted to another owner, even if the lease runs out meanwhile. The transaction is one of the database
// that has the locks. Call Guard once in it, anywhere after Lock, and commit before Unlock.
//
// Errors: [mortise.ErrLost] if the lease was lost, or is one of a side of a read-write lock or of permits, which have
// several owners; [mortise.ErrReleased] after Unlock, [mortise.ErrInvalid] for a lease of several locks; otherwise
// PostgreSQL's. After an error of the server the transaction cannot commit any more.
//
// A session that is idle in the transaction for longer than what is left of the lease is ended by the server, so that a
// holder that was stopped does not keep the lock for ever: Guard lowers idle_in_transaction_session_timeout for the
// transaction. A lock whose delegations are in use has several owners, and is refused as lost.
//
// Cost: one statement in the transaction.
func Guard(ctx context.Context, tx pgx.Tx, l *mortise.Lease) error {
	return guard(l, func(args ...any) error {
		_, err := tx.Exec(ctx, guardSQL, args...)
		return err
	})
}

// GuardSQL is [Guard] for a transaction of database/sql, by pgx's driver or another one whose errors have a method
// SQLState.
func GuardSQL(ctx context.Context, tx *sql.Tx, l *mortise.Lease) error {
	return guard(l, func(args ...any) error {
		_, err := tx.ExecContext(ctx, guardSQL, args...)
		return err
	})
}

func guard(l *mortise.Lease, exec func(args ...any) error) error {
	if err := l.Err(); err != nil {
		return fmt.Errorf("postgres.Guard %s: %w", l.Name(), err)
	}
	if l.Owner() == "" {
		return fmt.Errorf("postgres.Guard %s: %w: not a lease of one lock with a single owner", l.Name(), mortise.ErrInvalid)
	}
	err := exec(cas.KeyOf(l.Name()), l.Owner(), max(l.Remaining().Milliseconds(), 1))
	if said, is := errors.AsType[interface {
		error
		SQLState() string
	}](err); is {
		switch said.SQLState() {
		case errGuard:
			err = fmt.Errorf("%w: in this database the name has another owner, or none; a side of a read-write lock and "+
				"permits have none", mortise.ErrLost)
		case "42883":
			err = fmt.Errorf("%w; create mortise's functions in this database: postgres.Migrate", err)
		}
	}
	if err != nil {
		return fmt.Errorf("postgres.Guard %s: %w", l.Name(), err)
	}
	return nil
}
