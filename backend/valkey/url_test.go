package valkey_test

import (
	"context"
	"testing"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

func TestAURLNamesAServer(t *testing.T) {
	server := redistest.Start(t, redistest.WithPassword("secret"))
	locks := check.Value(mortise.Open("valkey://:secret@" + server.Addr() + "/0")).In(t)
	lease := check.Value(locks.Lock(t.Context(), "n")).In(t)
	check.Done(t, lease.Unlock(context.Background()))
	check.Done(t, locks.Close())
}
