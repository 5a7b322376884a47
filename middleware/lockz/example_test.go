package lockz_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/middleware/lockz"
)

func ExampleNew() {
	page := lockz.New()
	locks, err := mortise.New(memory.New(), mortise.WithObserver(page.Observer()))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	mux := http.NewServeMux()
	mux.Handle("/debug/lockz", page)

	lease, err := locks.Lock(context.Background(), "orders:42")
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range page.Locks("orders:").Held {
		fmt.Println(l.Name, l.Kind, l.Holds)
	}
	if err := lease.Unlock(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(page.Locks("").HeldInAll, "are held")
	// Output:
	// orders:42 lock 1
	// 0 are held
}
