//go:build linux || darwin

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/mortise-go/mortise/backend"
)

// held is the remedy where a transaction does not end.
const held = "look for a stopped process, or another program, in a transaction on the file"

// remedies are those of errors of SQLite, by primary code, and of others. The first that fits is used.
var remedies = []struct {
	code      int
	err       error
	remedy    string
	temporary bool
}{
	{lib.SQLITE_BUSY, context.Canceled, held, true},
	{lib.SQLITE_BUSY, context.DeadlineExceeded, held, true},
	{lib.SQLITE_FULL, unix.ENOSPC, "free space on the disk", true},
	{lib.SQLITE_IOERR, unix.EIO, "check the disk, and that it is a local one", true},
	{lib.SQLITE_CANTOPEN, fs.ErrNotExist, "make the file's folder, with the right to write", true},
	{lib.SQLITE_READONLY, fs.ErrPermission, "give the user the right to write to the file and its folder", false},
	{lib.SQLITE_PERM, fs.ErrPermission, "give the user the right to write to the file and its folder", false},
	{lib.SQLITE_NOTADB, nil, "the file is not of SQLite: choose another path", false},
	{lib.SQLITE_CORRUPT, nil, "the file is damaged: end all clients, and remove it with the files beside it", false},
	{0, errReplaced, "leave the file where it is; it is opened again", true},
	{0, errSocket, "leave the sockets where they are; they are made again", true},
	{0, nil, "see the error; report it if it does not say what to do", false},
}

// code returns the primary code of an error of SQLite.
func code(err error) int {
	if said := (*sqlite.Error)(nil); errors.As(err, &said) {
		return said.Code() & 0xff
	}
	return 0
}

// fault returns the Fault of an error of a commit: it may have been carried out.
func fault(err error) error {
	f := &backend.Fault{Err: fmt.Errorf("sqlite: %w", err), MayHaveRun: true}
	for _, r := range remedies {
		if code(err) != 0 && r.code == code(err) || errors.Is(err, r.err) || r.code == 0 && r.err == nil {
			f.Remedy, f.Temporary = r.remedy, r.temporary
			break
		}
	}
	return f
}

// unsent is fault for an error of what has not been carried out; nil for nil.
func unsent(err error) error {
	if err == nil {
		return nil
	}
	f := backend.FaultOf(fault(err))
	f.MayHaveRun = false
	return &f
}
