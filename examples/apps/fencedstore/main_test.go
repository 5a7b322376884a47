//go:build unix

package main

import (
	"context"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/internal/redistest"
)

func check(t *testing.T, addr string) {
	t.Helper()
	var out strings.Builder
	if err := run(context.Background(), addr, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if !strings.Contains(out.String(), ErrStale.Error()) {
		t.Errorf("no write was refused\n%s", &out)
	}
	t.Logf("\n%s", &out)
}

func TestAStaleWriteIsRefusedInMemory(t *testing.T) { check(t, "") }

func TestAStaleWriteIsRefusedOnRedis(t *testing.T) { check(t, redistest.Start(t).Addr()) }

func TestTheTableTakesATokenAgainAndRefusesAnOlderOne(t *testing.T) {
	ctx := context.Background()
	accounts, err := OpenAccounts(ctx, "acme", 100)
	if err != nil {
		t.Fatal(err)
	}
	defer accounts.Close()
	if err := accounts.Set(ctx, "acme", 70, 2); err != nil {
		t.Fatal(err)
	}
	if err := accounts.Set(ctx, "acme", 50, 2); err != nil {
		t.Errorf("the same token, again: %v", err)
	}
	if err := accounts.Set(ctx, "acme", 10, 1); err != ErrStale {
		t.Errorf("an older token: %v", err)
	}
	if b, err := accounts.Balance(ctx, "acme"); b != 50 || err != nil {
		t.Errorf("the balance: %d, %v", b, err)
	}
}
