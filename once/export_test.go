package once

import (
	"context"
	"time"
)

// EveryBy is Every with ticks of a function instead of a client's.
func EveryBy(ctx context.Context, claim func(TickRequest) (Tick, error), interval time.Duration,
	fn func(ctx context.Context, at time.Time), opts ...Option) error {
	s, err := newSchedule("n", interval, opts)
	if err != nil {
		return err
	}
	return s.run(ctx, claim, fn)
}
