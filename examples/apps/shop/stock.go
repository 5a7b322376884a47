package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"
	"go.uber.org/fx"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// The stock is a service of its own. It takes an order's goods from the shelf, under the order's lock: its own
// people call it, and so does the shop, in the middle of shipping the order, while it holds that very lock. What
// the shop sends along lets the stock enter it.

// newKeys makes the key that the shop signs by and the stock verifies by. In yours it comes from where your
// secrets are, the same for both.
func newKeys() (*delegation.Ring, error) {
	secret := make([]byte, delegation.MinSecret)
	rand.Read(secret)
	return delegation.NewRing(delegation.NewKey("first", secret))
}

// newStockRoutes are the stock's HTTP. AcceptDelegations stands before the lock.
func newStockRoutes(locks *mortise.Client, warehouse *Warehouse, keys *delegation.Ring) (http.Handler, error) {
	checker, err := delegation.NewChecker(keys, "stock", delegation.WithLogger(slog.Default()))
	if err != nil {
		return nil, err
	}
	order := httplock.New(locks, httplock.RouteKey("orders:{id}", httplock.Canonical("id", orderID)))
	take := func(w http.ResponseWriter, r *http.Request) {
		if err := warehouse.Take(r.Context(), r.PathValue("id")); err != nil {
			return // the lock is lost, which the middleware answers, or the client has gone
		}
		io.WriteString(w, "taken")
	}
	r := chi.NewRouter()
	r.With(httplock.AcceptDelegations(locks, checker), order).Post("/orders/{id}/take", take)
	return r, nil
}

// StockService is one process of the stock.
func StockService(at *Addresses, warehouse *Warehouse, keys *delegation.Ring, store fx.Option) fx.Option {
	return fx.Options(
		fx.NopLogger,
		fx.Supply(at, warehouse, keys),
		store,
		fx.Provide(newStockRoutes),
		fx.Invoke(serveHTTP),
	)
}

// Stock is the stock as the shop calls it.
type Stock struct {
	url    string
	client *http.Client
}

// NewStock makes a client that tells only the stock which locks the shop holds.
func NewStock(origin string, keys *delegation.Ring) (*Stock, error) {
	issuer, err := delegation.NewIssuer(keys, delegation.WithLogger(slog.Default()))
	if err != nil {
		return nil, err
	}
	tells := httplock.NewTransport(nil, issuer, httplock.Origins{origin: "stock"})
	return &Stock{origin, &http.Client{Transport: tells}}, nil
}

// Take has the stock take an order's goods. With the context of the order's lease it enters that lock; with another it
// would be refused. The id is escaped: as it stands, 42/take?x= would lead to another path of the
// stock, with what lets it enter the shop's locks.
func (s *Stock) Take(ctx context.Context, id string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/orders/"+url.PathEscape(id)+"/take", nil)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return fmt.Errorf("the stock answers %d: %s", resp.StatusCode, strings.TrimSpace(string(body)))
	}
	return nil
}

// Shipping sends orders out.
type Shipping struct {
	warehouse *Warehouse
	stock     *Stock
}

// Ship is called with the context of the order's lease.
func (s *Shipping) Ship(ctx context.Context, id string) (Order, error) {
	order := s.warehouse.Get(id)
	if err := ship(&order); err != nil { // nothing is taken for it
		return Order{}, err
	}
	if err := s.stock.Take(ctx, id); err != nil {
		return Order{}, err
	}
	return s.warehouse.Change(ctx, id, ship)
}

// openStock starts the stock, and returns its client.
func openStock(ctx context.Context, at string, warehouse *Warehouse, store fx.Option) (*Stock, func() error, error) {
	keys, err := newKeys()
	if err != nil {
		return nil, nil, err
	}
	addr := Addresses{HTTP: at}
	app := fx.New(StockService(&addr, warehouse, keys, store))
	if err := start(ctx, app); err != nil {
		return nil, nil, fmt.Errorf("the stock: %w", err)
	}
	stock, err := NewStock("http://"+addr.HTTP, keys)
	return stock, func() error { return stop(app) }, err
}
