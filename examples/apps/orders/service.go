package main

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"time"

	"github.com/mortise-go/mortise"
)

// service is one replica of a service that ships orders: each order gets one label.
type service struct {
	db    *sql.DB
	locks mortise.Locker
	buy   func(ctx context.Context, order string) (label string, err error) // from a carrier: slow, and costs money
}

// shipUnlocked is correct as long as one request at a time asks for an order.
func (s *service) shipUnlocked(ctx context.Context, order string) error {
	if bought, err := label(ctx, s.db, order); err != nil || bought != "" {
		return err
	}
	bought, err := s.buy(ctx, order)
	if err != nil {
		return err
	}
	return save(ctx, s.db, order, bought)
}

// shipLocked is correct as long as no process is paused for longer than its lease.
func (s *service) shipLocked(ctx context.Context, order string) error {
	return mortise.Do(ctx, s.locks, "orders:"+order, func(ctx context.Context) error {
		return s.shipUnlocked(ctx, order)
	}, mortise.WithWait(5*time.Second))
}

// ship is correct whatever the clocks do: the row refuses a late write.
func (s *service) ship(ctx context.Context, order string) error {
	lease, err := s.locks.Lock(ctx, "orders:"+order, mortise.WithWait(5*time.Second))
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx)
	if bought, err := label(lease.Context(), s.db, order); err != nil || bought != "" {
		return err
	}
	bought, err := s.buy(lease.Context(), order)
	if err != nil {
		return err
	}
	token := lease.Token()
	return saveFenced(lease.Context(), s.db, order, bought, token)
}

// ServeHTTP ships the order in the path.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := s.ship(r.Context(), r.PathValue("id"))
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, sql.ErrNoRows):
		http.Error(w, "no such order", http.StatusNotFound)
	case errors.Is(err, mortise.ErrNotAcquired):
		http.Error(w, "another request is shipping this order", http.StatusLocked)
	case errors.Is(err, mortise.ErrUnavailable):
		http.Error(w, "the lock service is unavailable", http.StatusServiceUnavailable)
	default: // mortise.ErrLost, ErrStale, the carrier, the database
		http.Error(w, "not shipped", http.StatusInternalServerError)
	}
}
