package mortise_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
)

// A lock that other processes respect, and work that ends with it.
func Example() {
	locks, err := mortise.New(memory.New()) // on Redis: redisgo.New(rdb), or rueidis.New(option)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()

	lease, err := locks.Lock(ctx, "orders:42", mortise.WithWait(5*time.Second))
	if errors.Is(err, mortise.ErrNotAcquired) {
		log.Fatal("still held by another owner after 5 s: ", err)
	} else if err != nil {
		log.Fatal("the store is unavailable: ", err)
	}
	defer lease.Unlock(ctx)
	ship(lease.Context(), 42) // this context ends the moment the lock is lost
	// Output: shipped 42
}

// Do locks, runs a function under the lease's context, and unlocks, also when the
// function panics.
func ExampleDo() {
	locks, err := mortise.New(memory.New())
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	err = mortise.Do(context.Background(), locks, "orders:42", func(ctx context.Context) error {
		return ship(ctx, 42)
	}, mortise.WithWait(5*time.Second))
	if errors.Is(err, mortise.ErrLost) {
		log.Fatal("the lock was lost meanwhile, the work may have overlapped with another's: ", err)
	} else if err != nil {
		log.Fatal(err)
	}
	// Output: shipped 42
}

// TryLock does not wait. A web handler tells "busy" from "broken" by the error:
// 423 is the lock's answer, 503 the store's.
func ExampleClient_TryLock() {
	store := memory.New()
	locks, err := mortise.New(store)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	handler := func(w http.ResponseWriter, r *http.Request) {
		lease, err := locks.TryLock(r.Context(), "orders:42")
		var refused *mortise.Error
		switch {
		case errors.Is(err, mortise.ErrNotAcquired) && errors.As(err, &refused):
			seconds := int(refused.Remaining.Seconds()) + 1 // of the holder's lease; it may be renewed
			w.Header().Set("Retry-After", strconv.Itoa(seconds))
			http.Error(w, "order 42 is being worked on", http.StatusLocked)
			return
		case err != nil: // mortise.ErrUnavailable, most likely
			http.Error(w, "no lock service", http.StatusServiceUnavailable)
			return
		}
		defer lease.Unlock(r.Context()) // is sent even if the request was cancelled
		fmt.Fprint(w, "done")
	}

	get := func() int {
		w := httptest.NewRecorder()
		handler(w, httptest.NewRequest("POST", "/orders/42", nil))
		return w.Code
	}
	fmt.Println("free:", get())

	lease, err := locks.Lock(context.Background(), "orders:42")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held:", get())
	lease.Unlock(context.Background())

	store.SetDown(errors.New("connection refused"))
	fmt.Println("store down:", get())
	// Output:
	// free: 200
	// held: 423
	// store down: 503
}

// A flood of calls for one busy lock keeps no more than ten of them waiting.
func ExampleWithMaxWaiters() {
	locks, err := mortise.New(memory.New())
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()
	lease, err := locks.Lock(ctx, "orders:42")
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	results := make(chan error)
	flood, end := context.WithCancel(ctx)
	for range 1000 {
		go func() {
			_, err := locks.Lock(flood, "orders:42", mortise.WithMaxWaiters(10), mortise.WithWait(time.Minute))
			results <- err
		}()
	}
	refused := 0
	for range 990 {
		if errors.Is(<-results, mortise.ErrNotAcquired) {
			refused++
		}
	}
	fmt.Println(refused, "calls were refused at once")
	end()
	for range 10 {
		<-results
	}
	// Output: 990 calls were refused at once
}

// A function that holds a lock may call another that takes the same one, as long as
// it passes its lease's context on. Any other context waits.
func ExampleLocker_reentry() {
	locks, err := mortise.New(memory.New())
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()

	charge := func(ctx context.Context) error {
		return mortise.Do(ctx, locks, "orders:42", func(ctx context.Context) error {
			state, err := locks.Inspect(ctx, "orders:42")
			fmt.Println("held", state.Holds, "times")
			return err
		})
	}
	err = mortise.Do(ctx, locks, "orders:42", func(leaseCtx context.Context) error {
		if err := charge(leaseCtx); err != nil { // enters again
			return err
		}
		_, err := locks.TryLock(ctx, "orders:42") // ctx holds nothing: a competitor
		fmt.Println("with another context, not acquired:", errors.Is(err, mortise.ErrNotAcquired))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// held 2 times
	// with another context, not acquired: true
}

// WithLease holds the lock for a time and never renews it. Work that takes longer
// is told by its context.
func ExampleWithLease() {
	locks, err := mortise.New(memory.New())
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	lease, err := locks.Lock(context.Background(), "report:daily", mortise.WithLease(2*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(context.Background())

	select {
	case <-time.After(10 * time.Second): // the work, too slow
		fmt.Println("report written")
	case <-lease.Context().Done():
		fmt.Println("lost:", errors.Is(context.Cause(lease.Context()), mortise.ErrLost))
	}
	// Output: lost: true
}

// A fencing token lets the store that is written to refuse a holder that was paused
// beyond its lease, whatever any clock said.
func ExampleFenced() {
	locks, err := mortise.New(memory.New())
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()

	// In SQL: UPDATE accounts SET ..., token = $1 WHERE id = 7 AND token <= $1
	var highest int64
	write := func(token int64) string {
		if token < highest {
			return "refused"
		}
		highest = token
		return "written"
	}

	slow, err := locks.Lock(ctx, "account:7", mortise.Fenced(), mortise.WithLease(2*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	old := slow.Token() // and now this process is paused: a long GC, a stopped VM

	next, err := locks.Lock(ctx, "account:7", mortise.Fenced()) // waits until that lease is over
	if err != nil {
		log.Fatal(err)
	}
	defer next.Unlock(ctx)
	token := next.Token()
	fmt.Println("new holder:", write(token))
	fmt.Println("old holder:", write(old))
	// Output:
	// new holder: written
	// old holder: refused
}

// Inspect reads the holder of a lock.
func ExampleClient_Inspect() {
	locks, err := mortise.New(memory.New(), mortise.WithID("billing-1/4711"))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()

	lease, err := locks.Lock(ctx, "orders:42")
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)

	state, err := locks.Inspect(ctx, "orders:42")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(state.Held, state.Client, state.Holds, state.Mine)
	// Output: true billing-1/4711 1 true
}

// printLocks lists the locks whose names begin with prefix.
func printLocks(ctx context.Context, locks *mortise.Client, prefix string) error {
	for info, err := range locks.Locks(ctx, prefix) {
		if err != nil {
			return err // begin again
		}
		fmt.Println(info.Name, info.Kind, info.Client, info.Waiters)
	}
	return nil
}

// Locks lists what is held.
func ExampleClient_Locks() {
	locks, err := mortise.New(memory.New(), mortise.WithID("billing-1/4711"))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()

	lease, err := locks.LockAll(ctx, []string{"orders:1", "orders:2", "stock:7"})
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)
	if err := printLocks(ctx, locks, "orders:"); err != nil {
		log.Fatal(err)
	}
	// Output:
	// orders:1 lock billing-1/4711 0
	// orders:2 lock billing-1/4711 0
}

func ship(ctx context.Context, order int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	fmt.Println("shipped", order)
	return nil
}

// Work that goes on beside the holder keeps the values of the holder's context, and waits its turn for the lock.
func ExampleWithoutLeases() {
	locks, err := mortise.New(memory.New())
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	lease, err := locks.Lock(context.Background(), "orders:42")
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan error)
	go func(ctx context.Context) {
		done <- mortise.Do(ctx, locks, "orders:42", func(context.Context) error {
			fmt.Println("the background work")
			return nil
		})
	}(mortise.WithoutLeases(context.WithoutCancel(lease.Context())))
	fmt.Println("the handler")
	if err := lease.Unlock(context.Background()); err != nil {
		log.Fatal(err)
	}
	if err := <-done; err != nil {
		log.Fatal(err)
	}
	// Output:
	// the handler
	// the background work
}

// A client with a prefix has names of its own; what is said of them has the prefix.
func ExampleWithPrefix() {
	store := memory.New()
	orders, err := mortise.New(store,
		mortise.WithPrefix("orders:"), mortise.WithDefaults(mortise.WithWait(5*time.Second)))
	if err != nil {
		log.Fatal(err)
	}
	defer orders.Close()
	lease, err := orders.Lock(context.Background(), "42")
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(context.Background())
	fmt.Println(lease.Name())
	_, err = orders.TryLock(context.Background(), "42")
	fmt.Println(errors.Is(err, mortise.ErrNotAcquired))
	// Output:
	// orders:42
	// true
}

func ExampleClient_RW() {
	locks, _ := mortise.New(memory.New())
	defer locks.Close()
	read, write := locks.RW().Read, locks.RW().Write
	ctx := context.Background()

	w, _ := write.Lock(ctx, "config")
	// ... change it, and go on reading what was written (a downgrade):
	r, _ := read.Lock(w.Context(), "config")
	w.Unlock(ctx)
	// ... r.Context() lives on, others read too
	r.Unlock(ctx)
}
