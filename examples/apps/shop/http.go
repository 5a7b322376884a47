package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// orderID reads the id of an order, a positive number, as a client writes it. Ids go into names of
// locks and into URLs of other services, so every door of the shop reads them by this function, and
// handlers see the text that it returns: 5 for 05.
func orderID(text string) (string, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return "", errors.New("an order's id is a number")
	}
	return strconv.FormatUint(n, 10), nil
}

// The bounds of a request, besides 10 s for its body.
const (
	maxWait = 20 * time.Second
	maxHold = 30 * time.Second
)

// newRoutes are the shop's HTTP. The middleware stands at the routes, where chi knows {id}. Handlers
// read the id by PathValue, where the middleware puts what orderID returns; chi.URLParam has the text
// of the URL.
func newRoutes(
	locks mortise.Locker, warehouse *Warehouse, shipping *Shipping, metrics prometheus.Gatherer,
) http.Handler {
	order := httplock.RouteKey("orders:{id}", httplock.Canonical("id", orderID))
	bounded := httplock.WithLockOptions(mortise.WithMaxHold(maxHold)) // whatever handler and client do
	atOnce := httplock.New(locks, order, bounded)
	inTurn := httplock.New(locks, order, bounded, httplock.WithWait(maxWait))

	r := chi.NewRouter()
	r.Get("/orders/{id}", func(w http.ResponseWriter, r *http.Request) { // needs no lock
		id, err := orderID(r.PathValue("id"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, warehouse.Get(id))
	})
	r.With(atOnce).Post("/orders/{id}/pay", changing(func(ctx context.Context, id string) (Order, error) {
		return warehouse.Change(ctx, id, pay)
	}))
	r.With(inTurn).Post("/orders/{id}/ship", changing(shipping.Ship))
	// In yours on a port that customers cannot reach.
	r.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return r
}

func changing(change func(ctx context.Context, id string) (Order, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		order, err := change(r.Context(), r.PathValue("id"))
		switch {
		case err == nil:
			answer(w, order)
		case r.Context().Err() != nil:
			// The lock is lost, which the middleware answers, or the client has gone.
		case errors.Is(err, errState):
			http.Error(w, err.Error(), http.StatusConflict)
		default:
			http.Error(w, "internal error", http.StatusInternalServerError)
		}
	}
}

func answer(w http.ResponseWriter, order Order) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(order)
}
