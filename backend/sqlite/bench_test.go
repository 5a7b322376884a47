//go:build linux || darwin

package sqlite_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mortise-go/mortise/backend/sqlite"
	"github.com/mortise-go/mortise/internal/redistest/beside"
)

// ways are those of the table: a file beside the operating system's own lock of a file, which has no queue, no lease,
// no token, and writes nothing.
var ways = []beside.Way{
	{Name: "flock of the system", Open: openFlock},
	{Name: "mortise, SQLite", Open: beside.Mortise(sqlite.New)},
}

// openFlock locks a file for each name. Goroutines have files of their own, which are opened once.
func openFlock(path string) (beside.Lock, error) {
	var free sync.Map
	return func(_ context.Context, name string) (func() error, error) {
		at := path + "-" + name
		pool, _ := free.LoadOrStore(at, new(sync.Pool))
		f, _ := pool.(*sync.Pool).Get().(*os.File)
		if f == nil {
			var err error
			if f, err = os.OpenFile(at, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
				return nil, err
			}
		}
		for err := unix.EINTR; errors.Is(err, unix.EINTR); {
			err, _ = unix.Flock(int(f.Fd()), unix.LOCK_EX).(unix.Errno)
		}
		return func() error {
			defer pool.(*sync.Pool).Put(f)
			return unix.Flock(int(f.Fd()), unix.LOCK_UN)
		}, nil
	}, nil
}

// BenchmarkBeside is `make bench-stores`.
func BenchmarkBeside(b *testing.B) {
	beside.Table(b, func() string { return newStore(b).path() }, ways...)
}
