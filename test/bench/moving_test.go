package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/redisgo"
)

// The functions down to the first test are the code of docs/how-to/moving.md.

func redsyncBefore(ctx context.Context, rdb redis.UniversalClient, work func(context.Context) error) error {
	mutex := redsync.New(redsyncredis.NewPool(rdb)).NewMutex("orders:42", redsync.WithExpiry(10*time.Second))
	if err := mutex.LockContext(ctx); err != nil {
		return err // *ErrTaken after 32 tries, or an error of Redis
	}
	defer mutex.UnlockContext(ctx) // is not sent if ctx has ended
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for tick := time.Tick(3 * time.Second); ; {
			select {
			case <-tick:
				mutex.ExtendContext(ctx) // and if this fails, work goes on
			case <-stop:
				return
			}
		}
	}()
	return work(ctx)
}

func redislockBefore(ctx context.Context, rdb redis.UniversalClient, work func(context.Context) error) error {
	retry := &redislock.Options{
		RetryStrategy: redislock.LimitRetry(redislock.LinearBackoff(100*time.Millisecond), 50),
	}
	lock, err := redislock.New(rdb).Obtain(ctx, "orders:42", 10*time.Second, retry)
	if err != nil {
		return err // ErrNotObtained after 5 s, or an error of Redis
	}
	defer lock.Release(ctx)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for tick := time.Tick(3 * time.Second); ; {
			select {
			case <-tick:
				lock.Refresh(ctx, 10*time.Second, nil) // and if this fails, work goes on
			case <-stop:
				return
			}
		}
	}()
	return work(ctx)
}

func mortiseAfter(ctx context.Context, locks mortise.Locker, work func(context.Context) error) error {
	return mortise.Do(ctx, locks, "m:orders:42", work, // the context of work ends with the lock
		mortise.WithWait(5*time.Second))
}

// whileBothRun is for the release in between: the old lock first, mortise's second.
func whileBothRun(
	ctx context.Context, rdb redis.UniversalClient, locks mortise.Locker, work func(context.Context) error,
) error {
	return redsyncBefore(ctx, rdb, func(ctx context.Context) error { return mortiseAfter(ctx, locks, work) })
}

func onAServer(t *testing.T) (redis.UniversalClient, *mortise.Client) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	t.Cleanup(func() { rdb.Close() })
	locks, err := mortise.New(redisgo.New(rdb))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return rdb, locks
}

// Each release excludes the one before and the one after.
func TestMovingReleasesExcludeTheirNeighbours(t *testing.T) {
	rdb, locks := onAServer(t)
	type release struct {
		name string
		run  func(context.Context, func(context.Context) error) error
	}
	before := release{"before", func(ctx context.Context, work func(context.Context) error) error {
		return redsyncBefore(ctx, rdb, work)
	}}
	between := release{"between", func(ctx context.Context, work func(context.Context) error) error {
		return whileBothRun(ctx, rdb, locks, work)
	}}
	after := release{"after", func(ctx context.Context, work func(context.Context) error) error {
		return mortiseAfter(ctx, locks, work)
	}}
	for _, pair := range [][2]release{{before, between}, {between, before}, {between, after}, {after, between}} {
		err := pair[0].run(t.Context(), func(context.Context) error {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if err := pair[1].run(ctx, func(context.Context) error { return nil }); err == nil {
				t.Errorf("%s and %s held at once", pair[0].name, pair[1].name)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestMovingRedislockRuns(t *testing.T) {
	rdb, _ := onAServer(t)
	ran := false
	err := redislockBefore(t.Context(), rdb, func(context.Context) error { ran = true; return nil })
	if err != nil || !ran {
		t.Errorf("ran: %v, %v", ran, err)
	}
}

// U5: what each library says of a name that another one holds.
func TestMovingWhatEachSaysOfTheOthersKey(t *testing.T) {
	rdb, locks := onAServer(t)
	ctx := t.Context()
	lease, err := locks.Lock(ctx, "mortise's")
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Unlock(ctx)
	_, err = redislock.New(rdb).Obtain(ctx, "mortise's", time.Second, nil)
	if err == nil || errors.Is(err, redislock.ErrNotObtained) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("redislock: %v", err)
	}
	var taken *redsync.ErrTaken
	if err := redsync.New(redsyncredis.NewPool(rdb)).NewMutex("mortise's").TryLockContext(ctx); !errors.As(err, &taken) {
		t.Errorf("redsync: %v", err)
	}
	other, err := redislock.New(rdb).Obtain(ctx, "redislock's", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release(ctx)
	if _, err := locks.TryLock(ctx, "redislock's"); !errors.Is(err, mortise.ErrWrongKind) {
		t.Errorf("mortise: %v", err)
	}
}
