package examples

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
)

// serve serves until ctx ends (signal.NotifyContext with SIGTERM). It then lets requests finish, for up to grace.
func serve(ctx context.Context, srv *http.Server, l net.Listener, locks *mortise.Client, grace time.Duration) error {
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return errors.Join(err, locks.Close())
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	srv.RegisterOnShutdown(func() { locks.Shutdown(end) }) // requests that wait for a lock return ErrClosed
	return errors.Join(srv.Shutdown(end), locks.Shutdown(end))
}

// ready is the readiness probe: some commands, bounded to a second.
func ready(locks *mortise.Client) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if _, err := locks.Check(ctx); err != nil {
			http.Error(w, "the lock service is unavailable", http.StatusServiceUnavailable)
		}
	}
}

func TestAReplicaOnKubernetesEndsInOrder(t *testing.T) {
	waiting := make(chan struct{})
	locks, err := mortise.New(memory.New(), mortise.WithObserver(mortise.Observer{
		Waiting: func(mortise.Event) { close(waiting) },
	}))
	if err != nil {
		t.Fatal(err)
	}
	held, goOn := make(chan struct{}), make(chan struct{})
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := mortise.Do(r.Context(), locks, "orders:42", func(context.Context) error {
			close(held)
			<-goOn
			return nil
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, sigterm := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- serve(ctx, srv, l, locks, 10*time.Second) }()
	answers := make(chan int)
	get := func() {
		resp, err := http.Get("http://" + l.Addr().String())
		if err != nil {
			t.Error(err)
			answers <- 0
			return
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		answers <- resp.StatusCode
	}
	go get()
	<-held
	go get()
	<-waiting
	sigterm()
	if code := <-answers; code != http.StatusServiceUnavailable {
		t.Errorf("the request that waits for the lock: %d", code)
	}
	close(goOn)
	if code := <-answers; code != http.StatusOK {
		t.Errorf("the request that holds the lock: %d", code)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestTheReadinessProbeTellsOfTheStore(t *testing.T) {
	store := memory.New()
	locks, err := mortise.New(store)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	probe := func() int {
		w := httptest.NewRecorder()
		ready(locks)(w, httptest.NewRequest("GET", "/ready", nil))
		return w.Code
	}
	if code := probe(); code != http.StatusOK {
		t.Error(code)
	}
	store.SetDown(errors.New("connection refused"))
	if code := probe(); code != http.StatusServiceUnavailable {
		t.Error(code)
	}
}
