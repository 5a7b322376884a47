//go:build linux

package exclusion

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mortise-go/mortise/test/internal/harness"
)

// older is the worker of the version with the wire of before: the product's code is that of testdata/older.tar.gz,
// the worker's is worker_test.go, product_older_test.go and what they stand on. `make older` writes the archive.
var older = struct {
	sync.Once
	path string
	err  error
}{}

// olderWorker is the path of that worker, which is built once.
func olderWorker(t *testing.T) string {
	t.Helper()
	older.Do(func() {
		var dir string
		if dir, older.err = os.MkdirTemp("", "older"); older.err != nil {
			return
		}
		atEnd = append(atEnd, func() { os.RemoveAll(dir) })
		older.path = filepath.Join(dir, "older.test")
		older.err = buildOlder(dir, older.path)
	})
	harness.OK(t, older.err)
	return older.path
}

// buildOlder builds in dir. The dependencies are those of today.
func buildOlder(dir, worker string) error {
	root := filepath.Join(dir, "older")
	err := unpack("testdata/older.tar.gz", root)
	const shared = "internal/redistest"
	err = errors.Join(err, os.CopyFS(filepath.Join(root, shared), os.DirFS(filepath.Join("../..", shared))))
	for to, from := range map[string]string{
		"older/go.mod": "../../go.mod", "older/go.sum": "../../go.sum", "go.mod": "../go.mod", "go.sum": "../go.sum",
	} {
		text, failed := os.ReadFile(from)
		err = errors.Join(err, failed, os.WriteFile(filepath.Join(dir, to), text, 0o600))
	}
	if err != nil {
		return err
	}
	mod := filepath.Join(dir, "go.mod")
	for _, args := range [][]string{
		{"mod", "edit", "-replace=github.com/mortise-go/mortise=" + root, mod},
		{"test", "-c", "-mod=mod", "-modfile=" + mod, "-o", worker, "worker_test.go", "product_older_test.go"},
	} {
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			return errors.Join(err, errors.New(strings.Join(args, " ")+":\n"+string(out)))
		}
	}
	return nil
}

// unpack writes the files of an archive below dir.
func unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for files := tar.NewReader(plain); ; {
		h, err := files.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if !fs.ValidPath(h.Name) {
			return &fs.PathError{Op: "unpack", Path: h.Name, Err: fs.ErrInvalid}
		}
		text, err := io.ReadAll(files)
		to := filepath.Join(dir, h.Name)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, text, 0o600)); err != nil {
			return err
		}
	}
}
