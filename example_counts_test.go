package mortise_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/semaphore"
)

// Workers count a latch down, and a call that waits for all of them returns at zero. The
// workers may be other processes, in Java too.
func ExampleCountDownLatch() {
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

// A semaphore keeps a fleet from asking too much of something: here at most two
// requests are under way.
func ExampleCountingSemaphore() {
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

// At most three in the whole fleet. Permits come back by themselves when the process that held them dies, and
// end as leases do.
func ExampleSemaphore() {
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
