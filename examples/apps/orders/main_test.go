//go:build unix

package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/redisgo"
)

// replicas are two of a service on one store and one table. Each purchase takes a second.
func replicas(t *testing.T, store *memory.Store) (pair [2]*service, bought *atomic.Int32) {
	t.Helper()
	db, err := openDB(t.Context(), "42")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	bought = new(atomic.Int32)
	for i := range pair {
		client, locks, err := newLocks(store)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		pair[i] = &service{db, locks, func(context.Context, string) (string, error) {
			bought.Add(1)
			time.Sleep(time.Second)
			return "a label", nil
		}}
	}
	return pair, bought
}

// together calls ship of both replicas at the same time, and counts purchases.
func together(t *testing.T, ship func(*service) error) int {
	pair, bought := replicas(t, memory.New())
	var wg sync.WaitGroup
	for _, s := range pair {
		wg.Go(func() {
			if err := ship(s); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return int(bought.Load())
}

func TestStep2WithoutALockTwoLabelsAreBought(t *testing.T) {
	if n := together(t, func(s *service) error { return s.shipUnlocked(t.Context(), "42") }); n != 2 {
		t.Errorf("%d labels", n)
	}
}

func TestStep3WithALockOneLabelIsBought(t *testing.T) {
	if n := together(t, func(s *service) error { return s.shipLocked(t.Context(), "42") }); n != 1 {
		t.Errorf("%d labels", n)
	}
}

func TestStep4TheServiceTellsHeldFromUnavailable(t *testing.T) {
	store := memory.New()
	pair, _ := replicas(t, store)
	post := func(ctx context.Context) int {
		mux := http.NewServeMux()
		mux.Handle("POST /orders/{id}/ship", pair[0])
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", "/orders/42/ship", nil))
		return w.Code
	}
	lease, err := pair[1].locks.Lock(t.Context(), "orders:42")
	if err != nil {
		t.Fatal(err)
	}
	if got := post(t.Context()); got != http.StatusLocked {
		t.Errorf("held by the other replica: %d", got)
	}
	lease.Unlock(t.Context())
	if got := post(t.Context()); got != http.StatusNoContent {
		t.Errorf("free: %d", got)
	}
	store.SetDown(errors.New("connection refused"))
	if got := post(t.Context()); got != http.StatusServiceUnavailable {
		t.Errorf("store down: %d", got)
	}
}

func TestStep5ALostLockEndsTheWork(t *testing.T) {
	store := memory.New()
	pair, _ := replicas(t, store)
	pair[0].buy = func(ctx context.Context, _ string) (string, error) {
		store.Delete("orders:42") // as an operator would, by DEL
		<-ctx.Done()
		return "", context.Cause(ctx)
	}
	if err := pair[0].ship(t.Context(), "42"); !errors.Is(err, mortise.ErrLost) {
		t.Error(err)
	}
}

func TestStep6AStaleWriteIsRefused(t *testing.T) {
	pair, _ := replicas(t, memory.New())
	ctx := t.Context()
	slow, err := pair[0].locks.Lock(ctx, "orders:42", mortise.WithLease(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	old := slow.Token() // here the first replica is paused for longer than its lease
	if err := pair[1].ship(ctx, "42"); err != nil {
		t.Fatal(err)
	}
	if err := saveFenced(ctx, pair[0].db, "42", "a second label", old); !errors.Is(err, ErrStale) {
		t.Errorf("a write with the old token: %v", err)
	}
	if err := save(ctx, pair[0].db, "42", "a second label"); err != nil { // without a token it gets through
		t.Error(err)
	}
}

func TestStep7AReplicaStopsWithoutDroppingRequests(t *testing.T) {
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, sigterm := context.WithCancel(t.Context())
	buying, bought, done, answered := make(chan bool), make(chan bool), make(chan error), make(chan string)
	buy := func(ctx context.Context, order string) (string, error) {
		close(buying)
		<-bought
		return "label of " + order, context.Cause(ctx)
	}
	go func() { done <- serve(ctx, redisgo.New(rdb), l, buy) }()
	go func() {
		resp, err := http.Post("http://"+l.Addr().String()+"/orders/42/ship", "", nil)
		if err != nil {
			answered <- err.Error()
			return
		}
		resp.Body.Close()
		answered <- resp.Status
	}()
	<-buying
	sigterm()
	for stopped := false; !stopped; { // it takes no more connections
		conn, err := net.Dial("tcp", l.Addr().String())
		if stopped = err != nil; !stopped {
			conn.Close()
		}
	}
	close(bought)
	if got := <-answered; got != "204 No Content" {
		t.Errorf("the request that was under way: %s", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTheProgram(t *testing.T) {
	for _, addr := range []string{"", redistest.Start(t).Addr()} {
		var out strings.Builder
		if err := run(t.Context(), addr, "", &out); err != nil || !strings.Contains(out.String(), "labels bought: 1") {
			t.Errorf("%v: %s", err, &out)
		}
	}
}

// A lease without renewals ends after the watchdog timeout, and so does the work.
func TestStep5AnOutageEndsTheWorkBeforeTheLockIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		client, err := mortise.New(store)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		lease, err := client.Lock(t.Context(), "orders:42")
		if err != nil {
			t.Fatal(err)
		}
		store.SetDown(errors.New("connection refused"))
		begin := time.Now()
		<-lease.Context().Done()
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("the work ended after %v", took)
		}
		store.SetDown(nil)
	})
}
