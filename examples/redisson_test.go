package examples

import (
	"context"
	"errors"
	"log"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/semaphore"
)

func ship(context.Context, int) {}

// Compiled, and not run: it wants a Redis that Java uses, too.
func Example_redisson() {
	rdb := goredis.NewClient(&goredis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	watchdog := mortise.WithWatchdogTimeout(30 * time.Second) // as Java's lockWatchdogTimeout
	locks, err := mortise.New(redisgo.New(rdb), watchdog)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()

	lease, err := locks.Lock(ctx, "orders:42", mortise.WithWait(5*time.Second))
	if errors.Is(err, mortise.ErrNotAcquired) {
		log.Fatal("held by another owner, in Java or Go, for 5 s: ", err)
	} else if err != nil {
		log.Fatal("Redis is unreachable: ", err)
	}
	defer lease.Unlock(ctx)
	ship(lease.Context(), 42)
}

// What the example about permits has at hand.
var (
	ctx      = context.Background()
	locks, _ = mortise.New(memory.New())
	message  struct{ Header map[string]string }
)

// Compiled, and not run: Java acquired the permit.
func Example_redissonSemaphore() {
	id := message.Header["permit"] // String id = semaphore.acquire(10, TimeUnit.MINUTES)
	err := semaphore.New(locks, "imports", 0).Release(ctx, id)
	if errors.Is(err, semaphore.ErrNotHeld) {
		log.Print("the permit has expired after its ten minutes; another worker may have begun: ", err)
	} else if err != nil {
		log.Fatal(err)
	}
}
