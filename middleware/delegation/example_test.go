package delegation_test

import (
	"context"
	"fmt"
	"log"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/middleware/delegation"
)

// A service that holds a lock calls another one, which takes the same lock. The delegations travel with the call;
// believe them only if they come unaltered from a service with the right to give them.
func ExampleNewContext() {
	store := memory.New() // on Redis these are two processes
	orders, err := mortise.New(store)
	if err != nil {
		log.Fatal(err)
	}
	defer orders.Close()
	billing, err := mortise.New(store)
	if err != nil {
		log.Fatal(err)
	}
	defer billing.Close()

	bill := func(delegations []delegation.Delegation) error { // in billing
		ctx, err := delegation.NewContext(context.Background(), billing, delegations...)
		if err != nil {
			return err
		}
		return mortise.Do(ctx, billing, "orders:42", func(ctx context.Context) error {
			fmt.Println("billed, within the lock of orders")
			return nil
		})
	}
	err = mortise.Do(context.Background(), orders, "orders:42", func(ctx context.Context) error {
		return bill(delegation.FromContext(ctx))
	})
	if err != nil {
		log.Fatal(err)
	}

	// Output:
	// billed, within the lock of orders
}
