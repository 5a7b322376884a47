//go:build linux || darwin

package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/sqlite"
)

func ExampleNew() {
	folder, err := os.MkdirTemp("", "shop") // of a service: /var/lib/shop
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)

	locks, err := mortise.New(sqlite.New(filepath.Join(folder, "locks.db")))
	if err != nil {
		panic(err)
	}
	defer locks.Close()
	ctx := context.Background()
	lease, err := locks.Lock(ctx, "orders:42", mortise.Fenced())
	if err != nil {
		panic(err)
	}
	fmt.Println("holds", lease.Name(), "with a token:", lease.Token() > 0)
	if err := lease.Unlock(ctx); err != nil {
		panic(err)
	}
	// Output: holds orders:42 with a token: true
}
