package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/semaphore"
)

// At most three in the whole fleet. The permits of a dead process expire, as leases do.
func Example() {
	locks, err := mortise.New(memory.New())
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()

	licences := semaphore.New(locks, "licences", 3)
	permit, err := licences.Acquire(ctx, 2, mortise.WithWait(5*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	info, err := licences.Inspect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d of %d are out\n", info.Out, info.Limit)
	_, err = licences.TryAcquire(ctx, 2)
	fmt.Println("another:", errors.Is(err, mortise.ErrNotAcquired))
	fmt.Println("work under the permit:", permit.Context().Err())
	if err := permit.Release(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("afterwards:", errors.Is(permit.Err(), mortise.ErrReleased))
	// Output:
	// 2 of 3 are out
	// another: true
	// work under the permit: <nil>
	// afterwards: true
}

// A semaphore keeps a fleet from asking too much of something: here at most two
// requests are under way.
func ExampleCounting() {
	locks, err := mortise.New(memory.New())
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()

	partner := semaphore.NewCounting(locks, "partner-api")
	if _, err := partner.TrySetPermits(ctx, 2); err != nil { // the first process sets it
		log.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if err := partner.Acquire(ctx, 1, mortise.WithWait(time.Minute)); err != nil {
				log.Print(err)
				return
			}
			defer partner.Release(ctx, 1)
			time.Sleep(time.Millisecond) // the request
		})
	}
	wg.Wait()
	free, err := partner.Available(ctx)
	fmt.Println(free, err)
	// Output: 2 <nil>
}
