package middleware_test

import (
	"context"
	"fmt"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/middleware"
)

// message is what a consumer of a queue gets.
type message struct {
	headers map[string]string
}

// A consumer that handles one message at a time for each order, whatever the process. The name of the lock comes from
// what the message says, so it is made by a template.
func Example() {
	locks, err := mortise.New(memory.New()) // on Redis: redisgo.New(rdb)
	if err != nil {
		panic(err)
	}
	defer locks.Close()
	names, err := middleware.ParseTemplate("orders:{order}")
	if err != nil {
		panic(err)
	}
	limit := middleware.NewLimit(100) // of messages that wait, whatever their orders

	handle := func(ctx context.Context, m message) error {
		name, err := names.Expand(func(placeholder string) (string, error) {
			value := m.headers[placeholder]
			if value == "" {
				return "", &middleware.ValueError{Name: placeholder, Why: "is missing or empty"}
			}
			return value, nil
		})
		if err != nil {
			return err
		}
		leave, ok := limit.Enter(0)
		if !ok {
			return mortise.ErrNotAcquired // the queue delivers it again
		}
		lease, err := locks.Lock(ctx, name)
		leave()
		if err != nil {
			return err
		}
		defer lease.Unlock(context.WithoutCancel(ctx))
		fmt.Println("handles one under", lease.Name()) // lease.Context() ends if the lock is lost
		return nil
	}

	ctx := context.Background()
	fmt.Println(handle(ctx, message{map[string]string{"order": "42"}}))
	fmt.Println(handle(ctx, message{map[string]string{"order": "42:refund"}}))
	fmt.Println(handle(ctx, message{}))
	// Output:
	// handles one under orders:42
	// <nil>
	// handles one under orders:42%3Arefund
	// <nil>
	// order is missing or empty
}

// A refusal that is passed on to a client is the store's answer of this moment, not one that is remembered.
func ExampleAskStore() {
	locks, err := mortise.New(memory.New())
	if err != nil {
		panic(err)
	}
	defer locks.Close()
	lease, err := locks.TryLock(middleware.AskStore(context.Background()), "orders:42")
	if err != nil {
		panic(err)
	}
	fmt.Println(lease.Name())
	if err := lease.Unlock(context.Background()); err != nil {
		panic(err)
	}
	// Output: orders:42
}
