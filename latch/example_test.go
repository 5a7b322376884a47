package latch_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/latch"
)

// Workers count a latch down, and a call that waits for all of them returns at zero. The
// workers may be other processes, in Java too.
func Example() {
	locks, err := mortise.New(memory.New())
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()

	done := latch.New(locks, "import:2024-06-01")
	if _, err := done.TrySet(ctx, 3); err != nil {
		log.Fatal(err)
	}
	for range 3 {
		go func() {
			// ... a part of the work ...
			if err := done.CountDown(ctx); err != nil {
				log.Print(err)
			}
		}()
	}
	if err := done.Wait(ctx, mortise.WithWait(time.Minute)); errors.Is(err, mortise.ErrNotAcquired) {
		log.Fatal("a worker is missing: ", err)
	} else if err != nil {
		log.Fatal(err)
	}
	fmt.Println("all parts are in")
	// Output: all parts are in
}
