package memory

import (
	"context"

	"github.com/mortise-go/mortise/backend"
)

type checks struct{ *client }

// Check implements [backend.CheckStore].
func (c checks) Check(ctx context.Context, _ string) ([]backend.Finding, error) {
	return locked(ctx, c.client, func(*Store) ([]backend.Finding, error) {
		return []backend.Finding{{Name: "server", State: backend.FindingOK, Text: "the store is in this process"}}, nil
	})
}
