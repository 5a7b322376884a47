package once_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/once"
)

func Example() {
	client, err := mortise.New(memory.New()) // redisgo.New(...) or rueidis.New(...) to share ticks with other processes
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx, stop := context.WithCancel(context.Background()) // signal.NotifyContext in a program
	defer stop()

	runs := 0
	err = once.Every(ctx, client, "reports", 50*time.Millisecond, func(ctx context.Context, at time.Time) {
		if runs++; runs == 3 {
			stop()
		}
	})
	fmt.Println(runs, err)
	// Output: 3 mortise: every "reports": context canceled
}

// Runs that must not overlap in the fleet take a lock. A tick that is due while a run takes longer
// than the interval is skipped.
func ExampleEvery_withoutOverlap() {
	client, err := mortise.New(memory.New())
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	_ = once.Every(ctx, client, "reports", 50*time.Millisecond, func(ctx context.Context, at time.Time) {
		lease, err := client.TryLock(ctx, "reports")
		switch {
		case errors.Is(err, mortise.ErrNotAcquired):
			return // the previous run is not over yet in another process
		case err != nil:
			fmt.Println("report of", at, "skipped:", err)
			return
		}
		defer lease.Unlock(context.WithoutCancel(ctx))
		report(lease.Context()) // ends if the lock is lost
		stop()
	})
	// Output: the report
}

func report(context.Context) { fmt.Println("the report") }
