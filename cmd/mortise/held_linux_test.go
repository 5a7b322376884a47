package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// On a machine so busy that the first deadline comes before the command begins, the command does not run, and the lock
// counts as lost.
func TestADeadlineBeforeTheCommandBeganIsALoss(t *testing.T) {
	locks := check.Value(mortise.New(memory.New())).In(t)
	defer locks.Close()
	lease := check.Value(locks.Lock(t.Context(), "n")).In(t)
	defer lease.Unlock(context.Background())
	h := &held{flags: &runFlags{lease: time.Microsecond}, grant: &grant{
		held: lease, owner: lease.Owner(), release: func(context.Context) error { return nil },
		renew: func(_ context.Context, _ []backend.RenewRequest, out []backend.RenewResult) { out[0].Held = true },
	}}
	began := t.TempDir() + "/began"
	code, err := h.run("/usr/bin/touch", []string{began})
	check.ErrorIf(t, code != codeLost || err == nil || !strings.Contains(err.Error(), "--lease"),
		"exit code %d, %v", code, err)
	_, err = os.Stat(began)
	check.ErrorIf(t, !os.IsNotExist(err), "the command began: %v", err)
}
