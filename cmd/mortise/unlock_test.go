//go:build linux

package main

import (
	"context"
	"io"
	"testing"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// The owner changes between the look and the release: before the answer to the question in half of the races, and at
// the same time as the release in the others. The lock of the new owner stays.
func TestUnlockNeverFreesAnotherOwner(t *testing.T) {
	check.Long(t)
	const races = 1000
	server := redistest.Start(t)
	store := memory.New()
	for name, open := range map[string]func() *mortise.Client{
		"memory": func() *mortise.Client { return check.Value(mortise.New(store)).In(t) },
		"Redis":  func() *mortise.Client { return client(t, server) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			first, second, operator := open(), open(), open()
			codes := map[int]int{}
			removed := 0
			for n := range races {
				lease := check.Value(first.Lock(ctx, "n")).In(t)
				got := make(chan *mortise.Lease, 1)
				change := func() {
					lease.Unlock(ctx) // lost, if it was freed before
					next, err := second.Lock(ctx, "n")
					check.NoError(t, err)
					got <- next
				}
				code, err := unlock(ctx, operator, "n", io.Discard, func() bool {
					if n%2 == 0 {
						change()
					} else {
						go change()
					}
					return true
				})
				check.Done(t, err)
				codes[code]++
				check.ErrorIf(t, n%2 == 0 && code != codeChanged, "race %d: exit code %d", n, code)
				if err := (<-got).Unlock(context.Background()); err != nil {
					removed++
					t.Errorf("race %d: the new owner's lock: %v", n, err)
				}
			}
			t.Logf("%d races: freed %d, the owner had changed %d, a new owner's removed %d", races, codes[0],
				codes[codeChanged], removed)
		})
	}
}
