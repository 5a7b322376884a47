package cas

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// operator implements [backend.OperatorStore].
type operator struct{ *session }

// Describe implements [backend.OperatorStore].
func (x operator) Describe(ctx context.Context, q backend.DescribeRequest) (backend.Description, error) {
	return ask(ctx, x.session, q.Name, func(n *record.Name, s *record.Step) (backend.Description, error) {
		return n.Describe(s, q.Entries, clockTime), nil
	})
}

// clockTime returns the time of a step.
func clockTime(t record.Time) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMilli(t.Milliseconds())
}
