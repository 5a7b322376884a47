//go:build unix

package examples

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// TestSizingOfDocs compares the bytes at the server in docs/how-to/sizing.md with what a Redis says, to a quarter.
func TestSizingOfDocs(t *testing.T) {
	check.Long(t)
	const n = 5000
	// No lease is renewed meanwhile: the server counts the buffers of that command, too.
	long := mortise.WithLease(time.Hour)
	page, err := os.ReadFile("../docs/how-to/sizing.md")
	if err != nil {
		t.Fatal(err)
	}
	for what, take := range map[string]func(ctx context.Context, locks *mortise.Client, i int) error{
		"a plain lock, held": func(ctx context.Context, locks *mortise.Client, i int) error {
			_, err := locks.Lock(ctx, fmt.Sprint("orders:", i), long)
			return err
		},
		"a fenced lock, held": func(ctx context.Context, locks *mortise.Client, i int) error {
			_, err := locks.Lock(ctx, fmt.Sprint("orders:", i), mortise.Fenced(), long)
			return err
		},
		"a fenced lock, released": func(ctx context.Context, locks *mortise.Client, i int) error {
			lease, err := locks.Lock(ctx, fmt.Sprint("orders:", i), mortise.Fenced())
			if err != nil {
				return err
			}
			return lease.Unlock(ctx)
		},
		"a read-write lock, held by one reader": func(ctx context.Context, locks *mortise.Client, i int) error {
			_, err := locks.RW().Read.Lock(ctx, fmt.Sprint("orders:", i), long)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			locks := onRedis(t, server)
			if err := take(t.Context(), locks, n); err != nil { // scripts and buffers are there afterwards
				t.Fatal(err)
			}
			before := used(t, server)
			for i := range n {
				if err := take(t.Context(), locks, i); err != nil {
					t.Fatal(err)
				}
			}
			got := (used(t, server) - before) / n
			want := cell(t, string(page), what)
			if got*4 < want*3 || got*4 > want*5 {
				t.Errorf("%d bytes, the page says %d", got, want)
			}
		})
	}
}

// used is the server's memory.
func used(t *testing.T, server *redistest.Server) int {
	n, err := strconv.Atoi(server.Info("used_memory"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// cell is the number in the second column of a page's row.
func cell(t *testing.T, page, row string) int {
	t.Helper()
	_, rest, ok := strings.Cut(page, "| "+row+" | ")
	if !ok {
		t.Fatalf("the page has no row %q", row)
	}
	number, _, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatalf("%s: %v", row, err)
	}
	return n
}
