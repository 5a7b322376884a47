package engine

import (
	"context"
	"fmt"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/fail"
)

// Check checks that the store answers, and what it tells. An error says that it does not answer, or that some call
// certainly fails.
func Check(ctx context.Context, e *Engine) ([]backend.Finding, error) {
	if err := e.Usable(); err != nil {
		return nil, fail.New("check", "", err)
	}
	if ctx == nil {
		ctx = context.Background()
	}
	found := make(chan []backend.Finding, 1) // the check may end after its caller has left
	check := func() error {
		return e.asking().Do(ctx, func() error {
			if err := e.store.Ping(e.base); err != nil {
				return err
			}
			all, err := look(e)
			if err == nil {
				found <- all
			}
			return err
		})
	}
	if err := e.Await(ctx, check, nil); err != nil {
		return nil, fail.New("check", "", e.Explain(err))
	}
	all := <-found
	var problems fail.List
	for _, f := range all {
		if f.State == backend.FindingProblem {
			problems = append(problems, fmt.Errorf("%s: %s; %s", f.Name, f.Text, f.Remedy))
		}
	}
	if len(problems) > 0 {
		return all, fail.New("check", "", fmt.Errorf("%w: %w", fail.Unavailable, problems))
	}
	return all, nil
}

// look returns the store's findings.
func look(e *Engine) ([]backend.Finding, error) {
	if e.store.can.Check == nil {
		return []backend.Finding{{Name: "server", State: backend.FindingUnknown, Text: "the store answers",
			Remedy: fmt.Sprintf("the backend (%T) tells no more", e.store.Store)}}, nil
	}
	return e.store.can.Check.Check(e.base, e.Config.Prefix)
}
