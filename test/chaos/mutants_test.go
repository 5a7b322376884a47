//go:build linux

package chaos

import (
	"context"
	"math/rand/v2"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// Mortise, with something wrong with one of its kinds.
const (
	readsBeside  = "a reader who is let in beside a writer"
	writesBeside = "a writer who is let in beside readers"
	onePermitToo = "a permit more than were made"
	givesTwice   = "a permit that is given back twice"
)

var mutants = []string{readsBeside, writesBeside, onePermitToo, givesTwice}

type mutated struct {
	*mortises
	how string
}

func (m *mutated) take(ctx context.Context, name string, w want) (lease, error) {
	switch {
	case m.how == readsBeside && w.reads && rand.IntN(20) == 0:
		name += ":readers" // another record than the writers'
	case m.how == writesBeside && w.shape == harness.ReadWrite && !w.reads && rand.IntN(20) == 0:
		w.reads = true
	case m.how == onePermitToo && w.shape == harness.Permits:
		if _, err := m.client.Permits(name).TrySetPermits(ctx, permitsMade+1); err != nil {
			return nil, err
		}
	}
	l, err := m.mortises.take(ctx, name, w)
	if err == nil && m.how == givesTwice && w.shape == harness.Permits && rand.IntN(20) == 0 {
		return twice{l, m.client.Permits(name)}, nil
	}
	return l, err
}

// twice is a permit that is given back twice.
type twice struct {
	lease
	permits *mortise.Permits
}

func (t twice) Unlock(ctx context.Context) error {
	err := t.lease.Unlock(ctx)
	if err == nil {
		err = t.permits.AddPermits(ctx, 1)
	}
	return err
}
