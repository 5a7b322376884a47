package httplock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// One request at a time for each order.
func Example() {
	locks, err := mortise.New(memory.New()) // on Redis: redisgo.New(rdb), or rueidis.New(option)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	// One lock for 42, 042 and +42, and the handler sees 42. Without :int they are three locks.
	key := httplock.RouteKey("orders:{id:int}")
	lock := httplock.New(locks, key, // a held lock is 423 at once; to wait: httplock.WithWait(2*time.Second)
		httplock.WithLockOptions(mortise.WithMaxHold(time.Minute))) // even if handler or client hangs

	ship := func(w http.ResponseWriter, r *http.Request) {
		// r.Context() ends if the lock is lost. For a store that checks tokens:
		// token := httplock.Lease(r.Context()).Token()
		fmt.Fprintln(w, "shipped", r.PathValue("id"))
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/ship", lock(http.HandlerFunc(ship)))
	// With chi: router.With(lock).Post("/orders/{id}/ship", ship)

	w := httptest.NewRecorder() // http.ListenAndServe(":8080", mux)
	mux.ServeHTTP(w, httptest.NewRequest("POST", "/orders/42/ship", nil))
	fmt.Print(w.Code, " ", w.Body)
	// Output: 200 shipped 42
}

// Two requests of one key: the second is told to come back.
func ExampleNew_refused() {
	locks, err := mortise.New(memory.New())
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	mux := http.NewServeMux()
	lock := httplock.New(locks, httplock.RouteKey("orders:{id}"))
	post := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("POST", path, nil))
		return w
	}
	mux.Handle("/orders/{id}", lock(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == "42" { // while it is being worked on:
			again := post("/orders/42")
			fmt.Println(again.Code, again.Header().Get("Content-Type"), again.Header().Get("Retry-After") != "")
			fmt.Println("another order:", post("/orders/43").Code)
		}
	})))
	fmt.Println("the first:", post("/orders/42").Code)
	// Output:
	// 423 application/problem+json true
	// another order: 200
	// the first: 200
}

// A request with an Idempotency-Key that is still being worked on is answered 409. The
// keys of one tenant are not another's.
func ExampleHeaderKey() {
	locks, err := mortise.New(memory.New())
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	type tenant struct{} // under which the authentication puts the caller
	pay := httplock.New(locks,
		httplock.Join(httplock.ContextKey("tenants:", tenant{}), httplock.HeaderKey("payments:{Idempotency-Key}")),
		httplock.WithStatus(http.StatusConflict),
	)(http.NotFoundHandler())

	w := httptest.NewRecorder()
	pay.ServeHTTP(w, httptest.NewRequest("POST", "/payments", nil)) // without a tenant, without a key
	fmt.Println(w.Code)
	// Output: 400
}

// Answers of one's own, and a log.
func ExampleWithErrorHandler() {
	store := memory.New()
	locks, err := mortise.New(store)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	answer := func(w http.ResponseWriter, r *http.Request, p httplock.Problem) {
		p.RetryAfter = min(p.RetryAfter, 5*time.Second) // our handlers take no longer
		if errors.Is(p.Err, mortise.ErrUnavailable) {
			fmt.Println("to the log:", p.Name, p.Status)
		}
		p.ServeHTTP(w, r)
	}
	key := func(*http.Request) (string, error) { return "reindex", nil } // one for all requests, by choice
	handler := httplock.New(locks, key, httplock.WithErrorHandler(answer))(http.NotFoundHandler())

	store.SetDown(errors.New("connection refused"))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/reindex", nil))
	// Output: to the log: reindex 503
}

// A service that holds an order's lock calls another one, which takes the same lock: it enters,
// instead of waiting for its own caller.
func ExampleAcceptDelegations() {
	secret := []byte("in production 32 random bytes from your secret store") // the same in both services
	ring, err := delegation.NewRing(delegation.NewKey("2026-11", secret))
	if err != nil {
		log.Fatal(err)
	}
	store := memory.New() // on Redis: redisgo.New(rdb), in each service

	// The called service, "stock".
	stockLocks, err := mortise.New(store)
	if err != nil {
		log.Fatal(err)
	}
	defer stockLocks.Close()
	checker, err := delegation.NewChecker(ring, "stock")
	if err != nil {
		log.Fatal(err)
	}
	accept := httplock.AcceptDelegations(stockLocks, checker)
	lock := httplock.New(stockLocks, httplock.RouteKey("orders:{id}"), httplock.WithWait(2*time.Second))
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/reserve", accept(lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "reserved under", httplock.Lease(r.Context()).Name())
	}))))
	stock := httptest.NewServer(mux)
	defer stock.Close()

	// The calling service. Only the listed origins get delegations.
	locks, err := mortise.New(store)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	issuer, err := delegation.NewIssuer(ring)
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: httplock.NewTransport(nil, issuer, httplock.Origins{stock.URL: "stock"})}

	err = mortise.Do(context.Background(), locks, "orders:42", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, "POST", stock.URL+"/orders/42/reserve", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(os.Stdout, resp.Body)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: reserved under orders:42
}
