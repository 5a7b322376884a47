// Package postgres lets mortise keep its locks in PostgreSQL 14 or newer, by github.com/jackc/pgx: with queues, fencing
// tokens and all kinds of locks but several in one step.
//
//	pool, err := pgxpool.New(ctx, url)
//	err = postgres.Migrate(ctx, pool)
//	locks, err := mortise.New(postgres.New(url))
//
// The locks are rows of the table mortise_names. A client has two connections of its own for requests, opened when they
// are needed. While something waits, and a second or two longer, it has a third one that listens.
//
// Each grant and each release is a transaction that is on disk when it is answered, as the server's synchronous_commit
// says; off is raised to on. After a failover to a replica without synchronous replication, locks of the last moments
// may be lost: another client may then be granted what a first one holds until its next renewal fails.
//
// The server's clock decides when a lease ends. It must not be set forward while a lock is held.
//
// Package postgres is a module of its own, so users of other stores do not get pgx.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/cas"
)

// lanes is how many requests of a client are under way at once. More than two make the batches smaller.
const lanes = 2

// New returns a backend on the database of a URL or keyword/value string, as pgx reads it. Nothing is connected before
// the first request. A bad string is an error of mortise.New. Of the pool's settings New sets the number of
// connections, and the isolation of transactions, which must be read committed.
func New(url string) backend.Backend {
	return cas.New(func() (cas.Driver, error) { return newDriver(url) })
}

func newDriver(url string) (cas.Driver, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	config.MaxConns, config.MinConns = lanes, 0
	config.ConnConfig.RuntimeParams["default_transaction_isolation"] = "read committed"
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return &driver{pool}, nil
}

// Execer is what [Migrate] and [Sweep] need of a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Migrate creates the table, the sequence and the function that New needs, in the first schema of the search path. It
// may be repeated, and by several processes at once. It needs the right to create in the schema. Clients then need
// SELECT, INSERT and UPDATE on mortise_names, and USAGE on mortise_versions.
func Migrate(ctx context.Context, db Execer) error {
	_, err := db.Exec(ctx, migrateSQL, pgx.QueryExecModeSimpleProtocol)
	if err == nil {
		return nil
	}
	remedy := backend.FaultOf(fault(err)).Remedy
	if said := new(pgconn.PgError); errors.As(err, &said) && said.Code == "42501" {
		remedy = "connect as a role that may create in the schema"
	}
	return fmt.Errorf("postgres.Migrate: %w; %s", err, remedy)
}

// Sweep removes the rows of names that nobody has held, or waited for, for an age, and returns how many. Rows that have
// had a fencing token stay: tokens must not begin again. It needs DELETE on mortise_names.
func Sweep(ctx context.Context, db Execer, age time.Duration) (int64, error) {
	tag, err := db.Exec(ctx, sweepSQL, age.Milliseconds())
	if err != nil {
		return 0, fmt.Errorf("postgres.Sweep: %w", err)
	}
	return tag.RowsAffected(), nil
}

// driver implements [cas.Driver] and [cas.Updater].
type driver struct{ pool *pgxpool.Pool }

// Close closes the connections. The session has no request under way.
func (d *driver) Close() error {
	d.pool.Close()
	return nil
}

// Limits implements [cas.Driver].
func (d *driver) Limits() cas.Limits { return cas.Limits{Value: 1 << 20, Batch: 128, Lanes: lanes} }

// args returns the arguments of swapSQL.
func args(in []cas.Swap) []any {
	keys, olds := make([]string, len(in)), make([]int64, len(in))
	values, owners := make([][]byte, len(in)), make([]*string, len(in))
	var of []int32
	to, notices := []string{}, []string{}
	for i, q := range in {
		keys[i], olds[i], values[i] = q.Key, q.Version, q.Value
		if q.Owner != "" {
			owners[i] = &q.Owner
		}
		for _, n := range q.Notices {
			of, to, notices = append(of, int32(i+1)), append(to, n.Session), append(notices, n.Text)
		}
	}
	return []any{keys, olds, values, owners, of, to, notices}
}

// Swap implements [cas.Driver].
func (d *driver) Swap(ctx context.Context, in []cas.Swap, out []cas.Swapped) error {
	c, err := d.pool.Acquire(ctx)
	if err != nil {
		return unsent(err)
	}
	defer c.Release()
	return scan(c.QueryRow(ctx, swapSQL, args(in)...), out)
}

func scan(row pgx.Row, out []cas.Swapped) error {
	var done []bool
	var versions, stamps []int64
	var values [][]byte
	var now int64
	if err := row.Scan(&done, &versions, &values, &stamps, &now); err != nil {
		return fault(err)
	}
	for i := range out {
		out[i] = cas.Swapped{Done: done[i], Version: versions[i], Stamp: millis(stamps[i]), Now: millis(now)}
		if i < len(values) {
			out[i].Value = values[i]
		}
	}
	return nil
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// Update implements [cas.Updater]: two round trips, and the row is locked over one of them.
func (d *driver) Update(ctx context.Context, key string, f func(cas.Swapped) cas.Swap) (cas.Swapped, error) {
	out := make([]cas.Swapped, 1)
	c, err := d.pool.Acquire(ctx)
	if err != nil {
		return out[0], unsent(err)
	}
	defer c.Release()
	var begin, end pgx.Batch
	var cur cas.Swapped
	var stamp, now int64
	begin.Queue("begin isolation level read committed")
	begin.Queue(lockRowSQL, key).QueryRow(func(row pgx.Row) error {
		return row.Scan(&cur.Version, &cur.Value, &stamp, &now)
	})
	err = c.SendBatch(ctx, &begin).Close()
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		_, _ = c.Exec(ctx, "rollback")
		return out[0], unsent(err)
	}
	cur.Stamp, cur.Now = millis(stamp), millis(now)
	q := f(cur)
	end.Queue(swapSQL, args([]cas.Swap{q})...).QueryRow(func(row pgx.Row) error { return scan(row, out) })
	end.Queue("commit")
	if err = c.SendBatch(ctx, &end).Close(); err != nil {
		_, _ = c.Exec(ctx, "rollback")
		return out[0], fault(err)
	}
	return out[0], nil
}

// List implements [cas.Lister].
func (d *driver) List(ctx context.Context, prefix, after string, most int) ([]cas.Kept, error) {
	c, err := d.pool.Acquire(ctx)
	if err != nil {
		return nil, unsent(err)
	}
	defer c.Release()
	last := prefix + strings.Repeat("\U0010ffff", 50) // a key has 200 bytes
	rows, err := c.Query(ctx, listSQL, prefix, last, after, most)
	if err != nil {
		return nil, fault(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k cas.Kept, err error) {
		var stamp, now int64
		err = row.Scan(&k.Key, &k.Version, &k.Value, &stamp, &now)
		k.Stamp, k.Now = millis(stamp), millis(now)
		return k, err
	})
	if err != nil {
		return nil, fault(err)
	}
	return all, nil
}

const (
	// silence is how long nothing may come over the connection that listens before it is tested.
	silence = 10 * time.Second
	// answers is how long the server may take for a test.
	answers = 5 * time.Second
)

// Listen implements [cas.Driver]. A pooler between the client and the server may accept LISTEN and drop it: Listen
// sends a notice to itself first.
func (d *driver) Listen(ctx context.Context, session string, hear func(cas.Heard)) error {
	config := d.pool.Config().ConnConfig
	config.RuntimeParams["application_name"] = "mortise " + session
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return unsent(err)
	}
	defer c.Close(context.Background())
	if _, err := c.Exec(ctx, "listen "+pgx.Identifier{session}.Sanitize()); err != nil {
		return fault(err)
	}
	if err := echo(ctx, c, session); err != nil {
		return err
	}
	hear(cas.Heard{})
	for {
		wait, cancel := context.WithTimeout(ctx, silence)
		n, err := c.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil:
			text, stamp, _ := strings.Cut(n.Payload, " ")
			ms, _ := strconv.ParseInt(stamp, 10, 64)
			if text != "" {
				hear(cas.Heard{Text: text, Stamp: millis(ms)})
			}
		case ctx.Err() != nil || c.IsClosed():
			return fault(err)
		default:
			ping, cancel := context.WithTimeout(ctx, answers)
			err = c.Ping(ping)
			cancel()
			if err != nil {
				return fault(err)
			}
		}
	}
}

// echo sends an empty notice to the session, and waits for it.
func echo(ctx context.Context, c *pgx.Conn, session string) error {
	ctx, cancel := context.WithTimeout(ctx, answers)
	defer cancel()
	if _, err := c.Exec(ctx, notifySQL, session, ""); err != nil {
		return fault(err)
	}
	if _, err := c.WaitForNotification(ctx); err != nil {
		return &backend.Fault{
			Err:    fmt.Errorf("postgres: a notice to this client did not arrive: %w", err),
			Remedy: "connect to the primary, and past a pooler of transactions: its LISTEN is lost", Temporary: true,
		}
	}
	return nil
}
