package main

import (
	"context"
	"database/sql"
	"errors"
)

// ErrStale is a write that came too late: a newer token has written since.
var ErrStale = errors.New("refused: a newer token has written")

// Accounts is a table whose writes are fenced.
type Accounts struct{ db *sql.DB }

// OpenAccounts makes a table with one account.
func OpenAccounts(ctx context.Context, id string, balance int) (*Accounts, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // each connection would have a memory of its own
	if _, err := db.ExecContext(ctx, `CREATE TABLE accounts (
		id      TEXT PRIMARY KEY,
		balance INTEGER NOT NULL,
		token   INTEGER NOT NULL DEFAULT 0
	)`); err != nil {
		db.Close()
		return nil, err
	}
	if _, err := db.ExecContext(ctx, `INSERT INTO accounts (id, balance) VALUES (?, ?)`, id, balance); err != nil {
		db.Close()
		return nil, err
	}
	return &Accounts{db}, nil
}

// Close closes the database.
func (a *Accounts) Close() error { return a.db.Close() }

// Balance reads an account.
func (a *Accounts) Balance(ctx context.Context, id string) (balance int, err error) {
	err = a.db.QueryRowContext(ctx, `SELECT balance FROM accounts WHERE id = ?`, id).Scan(&balance)
	return balance, err
}

// Set writes an account, or returns ErrStale. This condition is the whole of fencing: compare
// and write in one statement, and remember the token.
func (a *Accounts) Set(ctx context.Context, id string, balance int, token int64) error {
	result, err := a.db.ExecContext(ctx,
		`UPDATE accounts SET balance = ?, token = ? WHERE id = ? AND token <= ?`, balance, token, id, token)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if n == 0 {
		return ErrStale
	}
	return nil
}
