package cas

import (
	"context"

	"github.com/mortise-go/mortise/backend"
)

// checks implements [backend.CheckStore].
type checks struct{ *session }

// Checker may be implemented by a [Driver] that knows what is wrong with its store.
type Checker interface {
	// Check is [backend.CheckStore].Check, without the prefix.
	Check(ctx context.Context) ([]backend.Finding, error)
}

// Check implements [backend.CheckStore].
func (x checks) Check(ctx context.Context, _ string) ([]backend.Finding, error) {
	if d, can := x.driver.(Checker); can {
		return d.Check(ctx)
	}
	if err := x.Ping(ctx); err != nil {
		return nil, err
	}
	return []backend.Finding{{Name: "server", State: backend.FindingOK, Text: "the store answers"}}, nil
}
