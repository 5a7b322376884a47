//go:build unix

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/fx"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/examples/apps/shop/shopv1"
	"github.com/mortise-go/mortise/fxmodule"
	"github.com/mortise-go/mortise/middleware/delegation"
)

// An id that is text of an URL's would lead the shop's call, which enters the shop's locks, to another
// path of the stock.
const urlOfAnID = "42/take?x="

func TestAnOrdersIDIsNoPartOfAnInternalURL(t *testing.T) {
	asked := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- fmt.Sprint(r.URL.EscapedPath(), "?", r.URL.RawQuery)
	}))
	defer srv.Close()
	keys, err := newKeys()
	if err != nil {
		t.Fatal(err)
	}
	stock, err := NewStock(srv.URL, keys)
	if err != nil {
		t.Fatal(err)
	}
	if err := stock.Take(bounded(t), urlOfAnID); err != nil {
		t.Fatal(err)
	}
	if got, want := <-asked, "/orders/42%2Ftake%3Fx=/take?"; got != want {
		t.Errorf("the stock was asked for %s, want %s", got, want)
	}
}

func TestIDsAreCheckedAtBothDoors(t *testing.T) {
	ctx := bounded(t)
	store := memory.New()
	warehouse := NewWarehouse(0)
	keys, err := newKeys()
	if err != nil {
		t.Fatal(err)
	}
	locks, err := mortise.New(store)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	routes, err := newStockRoutes(locks, warehouse, keys)
	if err != nil {
		t.Fatal(err)
	}
	taken := make(chan string, 100)
	stockServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(delegation.Header) != "" {
			taken <- r.URL.String()
		}
		routes.ServeHTTP(w, r)
	}))
	defer stockServer.Close()
	stock, err := NewStock(stockServer.URL, keys)
	if err != nil {
		t.Fatal(err)
	}
	s, err := open(ctx, "a", warehouse, stock, fx.Options(fx.Supply(store), fxmodule.Memory()))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()

	for _, id := range []string{urlOfAnID, "..", "4%32", " 42", "4\n2", strings.Repeat("4", 65), "é"} {
		warehouse.orders[id] = Order{ID: id, State: "paid"} // or nothing would be taken
		for _, request := range []struct{ method, base, what string }{
			{http.MethodGet, "http://" + s.at.HTTP, ""},
			{http.MethodPost, "http://" + s.at.HTTP, "/pay"},
			{http.MethodPost, "http://" + s.at.HTTP, "/ship"},
			{http.MethodPost, stockServer.URL, "/take"},
		} {
			if status := ask(ctx, t, request.method, request.base+"/orders/"+url.PathEscape(id)+request.what); status != 400 {
				t.Errorf("%s /orders/%q%s of %s: %d, want 400", request.method, id, request.what, request.base, status)
			}
		}
		_, err := s.grpc.Ship(ctx, &shopv1.ShipRequest{OrderId: id})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("Ship of %q: %v, want InvalidArgument", id, err)
		}
	}
	select {
	case path := <-taken:
		t.Errorf("the shop called the stock, under its lock: %s", path)
	default:
	}
	if _, err := s.grpc.Ship(ctx, &shopv1.ShipRequest{OrderId: "42"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("Ship of an open order: %v", err) // the door is open
	}
}

func ask(ctx context.Context, t *testing.T, method, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}
