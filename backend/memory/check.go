package memory

import (
	"context"

	"github.com/mortise-go/mortise/backend"
)

type checks struct{ *client }

// Check implements [backend.CheckStore].
func (c checks) Check(ctx context.Context, _ string) ([]backend.Finding, error) {
	if err := c.Ping(ctx); err != nil {
		return nil, err
	}
	return []backend.Finding{{Name: "server", State: backend.FindingOK, Text: "the store is in this process"}}, nil
}
