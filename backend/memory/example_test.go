package memory_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
)

// Two clients of one store are as two processes of a fleet: a test of a service needs no Redis.
func ExampleNew() {
	store := memory.New()
	a, err := mortise.New(store)
	if err != nil {
		panic(err)
	}
	defer a.Close()
	b, err := mortise.New(store)
	if err != nil {
		panic(err)
	}
	defer b.Close()

	ctx := context.Background()
	lease, err := a.Lock(ctx, "orders:42")
	if err != nil {
		panic(err)
	}
	_, err = b.TryLock(ctx, "orders:42")
	fmt.Println("refused:", errors.Is(err, mortise.ErrNotAcquired))

	store.Delete("orders:42") // what an operator may do: the lease of a is lost
	<-lease.Context().Done()
	fmt.Println("lost:", errors.Is(lease.Err(), mortise.ErrLost))
	// Output:
	// refused: true
	// lost: true
}
