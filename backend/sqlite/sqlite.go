//go:build linux || darwin

// Package sqlite lets mortise keep its locks in a file of SQLite, by modernc.org/sqlite, which is written in Go: for
// the processes of one machine, with nothing to install. It has queues, fencing tokens and all kinds of locks but
// several in one step.
//
//	locks, err := mortise.New(sqlite.New("/var/lib/shop/locks.db"))
//
// The first request makes the file and its tables. Beside the file are SQLite's own files, a file that is locked for
// each transaction, and a socket for each client that waits. Use a local disk, and a folder that only the services'
// user can write to: the sockets say which client has a lock. Containers share locks if they share the
// folder and the machine.
//
// Each grant and each release is a transaction that is on disk when it is answered. Transactions of all processes are
// carried out one after the other. A process that is stopped in a transaction, which takes about a millisecond, holds
// up all others until it goes on or ends: their requests fail with mortise.ErrUnavailable.
//
// Leases are measured by the machine's monotonic clock: setting the clock of the day changes nothing, and while the
// machine sleeps no lease ends. If the file is moved, removed or replaced, clients go on with what is at its path, and
// the locks of before are lost.
//
// Package sqlite is a module of its own, so users of other stores do not get SQLite.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // the driver sqlite of package database/sql

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/cas"
)

// MaxPath is the length of the longest absolute path of a file, in bytes: the names of sockets are short.
const MaxPath = 80

// New returns a backend on a file. Nothing is opened before the first request; the file's folder must exist then. A
// path of more than [MaxPath] bytes, an empty one and :memory: are errors of mortise.New.
func New(path string) backend.Backend {
	return cas.New(func() (cas.Driver, error) { return newDriver(path) })
}

func newDriver(path string) (cas.Driver, error) {
	if path == "" || path == ":memory:" {
		return nil, fmt.Errorf("sqlite: %q is no file; for locks in memory use package memory", path)
	}
	path, err := filepath.Abs(path)
	if err != nil || len(path) > MaxPath {
		return nil, fmt.Errorf("sqlite: the path %s has more than %d bytes; choose a shorter one", path, MaxPath)
	}
	return &driver{path: path}, nil
}

// driver implements [cas.Driver] and [cas.Lister].
type driver struct {
	path string
	mu   sync.Mutex // is locked with lock
	lock *os.File   // is locked for each transaction: SQLite's own lock is waited for with sleeps
	db   *sql.DB    // has a single connection; nil: to be opened
	file os.FileInfo
}

// Limits implements [cas.Driver]. A file has one writer at a time.
func (d *driver) Limits() cas.Limits { return cas.Limits{Value: 1 << 20, Batch: 128, Lanes: 1} }

// Close closes the file, when the lock has come that a request may have waited for.
func (d *driver) Close() error {
	if !d.mu.TryLock() {
		go func() {
			d.mu.Lock()
			d.leave(true)
		}()
		return nil
	}
	d.leave(true)
	return nil
}

// settings of the connection: a transaction is on disk when it has been committed, and begins as one that writes.
const settings = "_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=fullfsync(on)&" +
	"_pragma=busy_timeout(1000)&_txlock=immediate"

// enter waits until no other process, and no other request of the session, is in a transaction. A wait that ends with
// ctx goes on in a goroutine: nothing else can end it.
func (d *driver) enter(ctx context.Context) error {
	got := make(chan error, 1)
	go func() {
		d.mu.Lock()
		got <- d.lockFile()
	}()
	select {
	case err := <-got:
		if err == nil {
			err = d.open()
		}
		if err != nil {
			d.leave(true)
		}
		return err
	case <-ctx.Done():
		go func() { d.leave(<-got != nil) }()
		return ctx.Err()
	}
}

func (d *driver) lockFile() (err error) {
	if d.lock == nil {
		if d.lock, err = os.OpenFile(d.path+"-lock", os.O_CREATE|os.O_RDWR, 0o666); err != nil {
			d.lock = nil
			return err
		}
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(d.lock.Fd()), unix.LOCK_EX)
	}
	return err
}

// leave ends enter. If something failed, it closes the files, and the next request opens them again.
func (d *driver) leave(failed bool) {
	if failed && d.db != nil {
		_ = d.db.Close()
		d.db = nil
	}
	if failed && d.lock != nil {
		_ = d.lock.Close() // and unlocks it
		d.lock = nil
	}
	if d.lock != nil {
		_ = unix.Flock(int(d.lock.Fd()), unix.LOCK_UN)
	}
	d.mu.Unlock()
}

var errReplaced = errors.New("the file was moved, removed or replaced")

// open opens the file if it is not open, and checks that the file is still at its path.
func (d *driver) open() (err error) {
	if d.db != nil {
		if now, err := os.Stat(d.path); err != nil || !os.SameFile(now, d.file) {
			return errReplaced
		}
		return nil
	}
	at := url.URL{Scheme: "file", OmitHost: true, Path: d.path, RawQuery: settings}
	if d.db, err = sql.Open("sqlite", at.String()); err != nil {
		return err
	}
	d.db.SetMaxOpenConns(1)
	if _, err = d.db.Exec(migrateSQL); err == nil {
		d.file, err = os.Stat(d.path)
	}
	return err
}

// Swap implements [cas.Driver]. What is under way ends by itself: ctx does not end it.
func (d *driver) Swap(ctx context.Context, in []cas.Swap, out []cas.Swapped) (err error) {
	if ctx.Err() != nil {
		return unsent(ctx.Err())
	}
	if err = d.enter(ctx); err != nil {
		return unsent(err)
	}
	done := false
	defer func() {
		if d.leave(err != nil); done {
			d.notify(in, out)
		}
	}()
	tx, err := d.db.Begin()
	if err != nil {
		return unsent(err)
	}
	if changed, err := swaps(tx, in, out); !changed || err != nil {
		return unsent(errors.Join(err, tx.Rollback()))
	}
	if err := tx.Commit(); err != nil {
		return fault(err)
	}
	done = true
	return nil
}

// swaps carries out swaps in a transaction. It reports whether something was changed and is to be committed.
func swaps(tx *sql.Tx, in []cas.Swap, out []cas.Swapped) (changed bool, err error) {
	var version, now int64
	if err := tx.QueryRow(nextSQL, len(in), monotonic()).Scan(&version, &now); err != nil {
		return false, err
	}
	for i := range in {
		if out[i], err = swap(tx, &in[i], version-int64(i), now); err != nil {
			return false, err
		}
		changed = changed || out[i].Done
	}
	return changed, nil
}

// swap carries out a swap, to a version.
func swap(tx *sql.Tx, q *cas.Swap, version, now int64) (r cas.Swapped, err error) {
	text, stamp := putSQL, int64(0)
	if q.Value == nil { // a Look removes nothing: no value has its version
		text = deleteSQL
	}
	err = tx.QueryRow(text, q.Key, version, q.Value, now, q.Version).Scan(&r.Version, &stamp)
	if r.Done = err == nil; errors.Is(err, sql.ErrNoRows) {
		err = tx.QueryRow(getSQL, q.Key).Scan(&r.Version, &r.Value, &stamp)
		if errors.Is(err, sql.ErrNoRows) {
			r.Done, err = q.Version == cas.None, nil // no value instead of no value
		}
	}
	r.Stamp, r.Now = millis(stamp), millis(now)
	return r, err
}

// List implements [cas.Lister].
func (d *driver) List(ctx context.Context, prefix, after string, most int) (all []cas.Kept, err error) {
	if err = d.enter(ctx); err != nil {
		return nil, unsent(err)
	}
	defer func() { d.leave(err != nil) }()
	last := prefix + strings.Repeat("\U0010ffff", 50) // a key has 200 bytes
	rows, err := d.db.Query(listSQL, prefix, last, after, monotonic(), most)
	if err != nil {
		return nil, unsent(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var k cas.Kept
		var stamp, now int64
		if err = rows.Scan(&k.Key, &k.Version, &k.Value, &stamp, &now); err != nil {
			return nil, unsent(err)
		}
		k.Stamp, k.Now = millis(stamp), millis(now)
		all = append(all, k)
	}
	return all, unsent(rows.Err())
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// monotonic returns the machine's monotonic clock in ms. It is the same for all processes, and goes on as that by which
// a holder counts its own lease does: it stands still while the machine sleeps.
func monotonic() int64 {
	id := int32(unix.CLOCK_MONOTONIC)
	if runtime.GOOS == "darwin" {
		id = 8 // CLOCK_UPTIME_RAW
	}
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		panic("sqlite: no monotonic clock: " + err.Error())
	}
	return t.Nano() / 1e6
}
