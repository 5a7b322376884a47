package main

import (
	"context"
	"database/sql"
	"errors"

	_ "modernc.org/sqlite"
)

// openDB opens a table of orders in memory.
func openDB(ctx context.Context, orders ...string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // each connection to ":memory:" is a database of its own
	_, err = db.ExecContext(ctx, `CREATE TABLE orders (
		id    TEXT PRIMARY KEY,
		label TEXT NOT NULL DEFAULT '',
		token INTEGER NOT NULL DEFAULT 0
	)`)
	for _, id := range orders {
		if err == nil {
			_, err = db.ExecContext(ctx, `INSERT INTO orders (id) VALUES (?)`, id)
		}
	}
	return db, err
}

// label reads the label of an order; empty before the order is shipped.
func label(ctx context.Context, db *sql.DB, order string) (label string, err error) {
	err = db.QueryRowContext(ctx, `SELECT label FROM orders WHERE id = ?`, order).Scan(&label)
	return label, err
}

// save writes the label of an order.
func save(ctx context.Context, db *sql.DB, order, label string) error {
	_, err := db.ExecContext(ctx, `UPDATE orders SET label = ? WHERE id = ?`, label, order)
	return err
}

// ErrStale is the error of a write whose token is smaller than one that the row has seen.
var ErrStale = errors.New("refused: the row has seen a newer token")

// saveFenced writes the label of an order, unless the row has seen a larger token.
func saveFenced(ctx context.Context, db *sql.DB, order, label string, token int64) error {
	result, err := db.ExecContext(ctx,
		`UPDATE orders SET label = ?, token = ? WHERE id = ? AND token <= ?`, label, token, order, token)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return ErrStale
}
