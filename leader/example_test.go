package leader_test

import (
	"context"
	"fmt"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/leader"
)

func Example() {
	client, err := mortise.New(memory.New()) // redisgo.New(...) or rueidis.New(...) to compete with other processes
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx := context.Background() // signal.NotifyContext in a program

	err = leader.Run(ctx, client, "scheduler", func(ctx context.Context, term leader.Term) error {
		l, err := leader.Current(ctx, client, "scheduler")
		fmt.Println(l.Identity, "leads:", l.Term == term.Token, err)
		return nil // the work is done; usually fn goes on until ctx ends
	}, leader.Identity("http://10.0.0.7:8080"))
	fmt.Println("resigned:", err)
	// Output:
	// http://10.0.0.7:8080 leads: true <nil>
	// resigned: <nil>
}

func ExampleObserve() {
	client, err := mortise.New(memory.New())
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	go leader.Run(ctx, client, "scheduler", func(ctx context.Context, _ leader.Term) error {
		<-ctx.Done()
		return ctx.Err()
	}, leader.Identity("http://10.0.0.7:8080"))

	for l, err := range leader.Observe(ctx, client, "scheduler") {
		switch {
		case err != nil: // the store is unavailable: the leader is not known
		case l == leader.Leader{}: // no leader now
		default:
			fmt.Println("forward to", l.Identity)
			stop()
		}
	}
	// Output: forward to http://10.0.0.7:8080
}
