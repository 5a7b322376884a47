package quorum_test

import (
	"context"
	"fmt"
	"log"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/quorum"
)

// A lock in three independent stores survives the loss of one.
func ExampleNew() {
	var clients []*mortise.Client
	var stores []*memory.Store
	for range 3 {
		store := memory.New() // on Redis: redisgo.New(rdb), three servers without replication
		// These stores are new and hold nothing; without the option a new store has no vote for a watchdog timeout.
		client, err := mortise.New(store, quorum.WithRejoinDelay(0))
		if err != nil {
			log.Fatal(err)
		}
		defer client.Close()
		clients, stores = append(clients, client), append(stores, store)
	}
	locks, err := quorum.New(clients...)
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	lease, err := locks.Lock(ctx, "orders:42")
	if err != nil {
		log.Fatal(err)
	}
	stores[0].Delete("orders:42") // one store forgets
	fmt.Println("held:", lease.Err() == nil)
	if err := lease.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: held: true
}
