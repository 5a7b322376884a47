//go:build unix

package valkey_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	valkeygo "github.com/valkey-io/valkey-go"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/valkey"
	"github.com/mortise-go/mortise/internal/redistest"
)

const patience = time.Minute

func client(t *testing.T, b backend.Backend) *mortise.Client {
	t.Helper()
	locks, err := mortise.New(b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks
}

// A lock that is known to be held is refused without a command; that it is free again, and
// that its record was deleted, is heard from the server.
func TestClientSideCaching(t *testing.T) {
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv.Addr())
	heard := make(chan struct{}, 1000)
	asker := client(t, valkey.New(valkeygo.ClientOption{
		InitAddress:     []string{proxy.Addr()},
		OnInvalidations: func([]valkeygo.ValkeyMessage) { heard <- struct{}{} }, // is called as well
	}))
	holder := client(t, valkey.New(valkeygo.ClientOption{InitAddress: []string{srv.Addr()}}))
	lease, err := holder.Lock(t.Context(), "n", mortise.WithLease(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	refused := func() {
		t.Helper()
		if _, err := asker.TryLock(t.Context(), "n"); !errors.Is(err, mortise.ErrNotAcquired) {
			t.Fatal(err)
		}
	}
	scripts := func() int { return proxy.Count(redistest.Named("EVALSHA", "EVAL")) }
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		before := scripts()
		if refused(); scripts() == before {
			break
		}
		if time.Now().After(end) {
			t.Fatal("each refusal costs a command")
		}
	}
	proxy.Reset()
	began := time.Now()
	for range 100 {
		refused()
	}
	pauses := int(time.Since(began) / (500 * time.Millisecond)) // of a busy machine: the cache asks again after each
	if n := scripts(); n > 3*pauses {
		t.Errorf("%d commands for 100 refusals in %v", n, time.Since(began))
	}

	srv.Must("DEL", "n")
	for what, ch := range map[string]<-chan struct{}{"the holder": lease.Context().Done(), "who asked": heard} {
		select {
		case <-ch:
		case <-time.After(patience): // the lease is an hour
			t.Fatalf("%s does not hear that the record is gone", what)
		}
	}
	if err := context.Cause(lease.Context()); !errors.Is(err, mortise.ErrLost) {
		t.Error(err)
	}
	next, err := asker.Lock(t.Context(), "n", mortise.WithWait(patience))
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// Nothing is read over a connection for subscriptions, so its end says nothing about records.
func TestALostSubscriptionForgetsNothing(t *testing.T) {
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv.Addr())
	lost := make(chan struct{}, 1000)
	asker := client(t, valkey.New(valkeygo.ClientOption{
		InitAddress: []string{proxy.Addr()},
		OnInvalidations: func(keys []valkeygo.ValkeyMessage) {
			if keys == nil {
				lost <- struct{}{}
			}
		},
	}))
	holder := client(t, valkey.New(valkeygo.ClientOption{InitAddress: []string{srv.Addr()}}))
	for _, name := range []string{"n", "m"} {
		lease, err := holder.Lock(t.Context(), name, mortise.WithLease(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Unlock(context.Background())
	}
	refused := func() {
		t.Helper()
		if _, err := asker.TryLock(t.Context(), "n"); !errors.Is(err, mortise.ErrNotAcquired) {
			t.Fatal(err)
		}
	}
	refused()
	subscribed := func() {
		t.Helper()
		for end := time.Now().Add(patience); len(srv.Must("PUBSUB", "CHANNELS").([]any)) == 0; {
			if time.Now().After(end) {
				t.Fatal("no channel is subscribed")
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() {
		_, err := asker.Lock(ctx, "m")
		waited <- err
	}()
	subscribed()
	srv.Must("CLIENT", "KILL", "TYPE", "pubsub")
	subscribed()
	refused()
	if len(lost) != 0 {
		t.Errorf("all records may have changed: %d times", len(lost))
	}
	cancel()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A user that loses +client|tracking, as after a failover to a server without it, goes on as if it had never had it.
func TestTrackingThatIsRefusedLaterIsDoneWithout(t *testing.T) {
	srv := redistest.Start(t, redistest.WithACL("some on >pw ~* &* +@all"))
	locks := client(t, valkey.New(valkeygo.ClientOption{
		InitAddress: []string{srv.Addr()}, Username: "some", Password: "pw",
	}))
	held, err := locks.Lock(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	srv.Must("ACL", "SETUSER", "some", "-client|tracking")
	srv.Must("CLIENT", "KILL", "USER", "some")
	srv.Must("HSET", "n", "java:1", "1")
	srv.Must("PEXPIRE", "n", "300")
	next, err := locks.Lock(t.Context(), "n", mortise.WithWait(patience))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []*mortise.Lease{next, held} {
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestOptionsThatCannotWorkAreErrorsOfNew(t *testing.T) {
	to := []string{"127.0.0.1:1"}
	for text, b := range map[string]backend.Backend{
		"InitAddress":  valkey.New(valkeygo.ClientOption{}),
		"ConnLifetime": valkey.New(valkeygo.ClientOption{InitAddress: to, ConnLifetime: time.Hour}),
		"ClientTrackingOptions": valkey.New(valkeygo.ClientOption{InitAddress: to,
			ClientTrackingOptions: []string{"BCAST"}}),
		"DisableAutoPipelining":   valkey.New(valkeygo.ClientOption{InitAddress: to, DisableAutoPipelining: true}),
		"NewWithClient: the clie": valkey.NewWithClient(nil),
		"valkey: a nil Option":    valkey.New(valkeygo.ClientOption{InitAddress: to}, nil),
		"WithShardedPubSub":       valkey.New(valkeygo.ClientOption{InitAddress: to}, valkey.WithShardedPubSub(-1)),
	} {
		if _, err := mortise.New(b); !errors.Is(err, mortise.ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
