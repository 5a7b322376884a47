//go:build linux || darwin

package sqlite_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mortise-go/mortise"
)

func TestAURLNamesAFile(t *testing.T) {
	path := t.TempDir() + "/l.db"
	for _, url := range []string{"sqlite:" + path, "sqlite://" + path} {
		locks, err := mortise.Open(url)
		if err != nil {
			t.Fatal(err)
		}
		if err := mortise.Do(t.Context(), locks, "n", func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		locks.Close()
	}
	for _, url := range []string{"sqlite:", "sqlite::memory:", "sqlite:/" + strings.Repeat("x", 200)} {
		if _, err := mortise.Open(url); !errors.Is(err, mortise.ErrInvalid) {
			t.Errorf("%s: %v", url, err)
		}
	}
}
