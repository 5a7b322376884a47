package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// newRoutes are the shop's HTTP. The middleware stands at the routes, where chi knows {id}.
func newRoutes(locks mortise.Locker, warehouse *Warehouse, shipping *Shipping, metrics prometheus.Gatherer) http.Handler {
	order := httplock.RouteKey("orders:{id}")
	atOnce := httplock.New(locks, order)
	inTurn := httplock.New(locks, order, httplock.WithWait(20*time.Second))

	r := chi.NewRouter()
	r.Get("/orders/{id}", func(w http.ResponseWriter, r *http.Request) { // needs no lock
		answer(w, warehouse.Get(chi.URLParam(r, "id")))
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
		order, err := change(r.Context(), chi.URLParam(r, "id"))
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
