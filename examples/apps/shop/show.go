package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/fx"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/examples/apps/shop/shopv1"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// watchdog has a lease renewed every 3 s.
var watchdog = mortise.WithWatchdogTimeout(9 * time.Second)

// shop is a replica that runs, as its customers and operators see it.
type shop struct {
	name  string
	at    Addresses
	app   *fx.App
	locks *mortise.Client
	http  *http.Client
	conn  *grpc.ClientConn
	grpc  shopv1.OrdersClient
}

func open(ctx context.Context, name string, warehouse *Warehouse, stock *Stock, store fx.Option) (*shop, error) {
	s := &shop{
		name: name,
		at:   Addresses{"127.0.0.1:0", "127.0.0.1:0"},
		http: &http.Client{Transport: new(http.Transport)},
	}
	s.app = fx.New(Replica(&s.at, warehouse, stock, store), fx.Populate(&s.locks))
	if err := start(ctx, s.app); err != nil {
		return nil, err
	}
	var err error
	if s.conn, err = grpc.NewClient(s.at.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return nil, errors.Join(err, stop(s.app))
	}
	s.grpc = shopv1.NewOrdersClient(s.conn)
	return s, nil
}

func (s *shop) close() error {
	s.http.CloseIdleConnections()
	return errors.Join(s.conn.Close(), stop(s.app))
}

// reply is an answer over HTTP.
type reply struct {
	status  int
	header  http.Header
	body    string
	order   Order            // of 200
	problem httplock.Problem // of application/problem+json
}

func (r reply) String() string { return strconv.Itoa(r.status) + " " + strings.TrimSpace(r.body) }

func (s *shop) do(ctx context.Context, method, path string) (r reply, err error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.at.HTTP+path, nil)
	if err != nil {
		return r, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	r.status, r.header, r.body = resp.StatusCode, resp.Header, string(body)
	if err != nil {
		return r, err
	}
	switch resp.Header.Get("Content-Type") {
	case "application/json":
		err = json.Unmarshal(body, &r.order)
	case "application/problem+json":
		err = json.Unmarshal(body, &r.problem)
	}
	return r, err
}

func (s *shop) post(ctx context.Context, id, what string) (reply, error) {
	return s.do(ctx, http.MethodPost, "/orders/"+id+"/"+what)
}

// later is a request under way.
type later func() (reply, error)

func (s *shop) begin(ctx context.Context, id, what string) later {
	var (
		r    reply
		err  error
		done = make(chan struct{})
	)
	go func() {
		defer close(done)
		r, err = s.post(ctx, id, what)
	}()
	return func() (reply, error) { <-done; return r, err }
}

// metric is the sum of what /metrics says under a name; none is 0.
func (s *shop) metric(ctx context.Context, name string) (sum float64, err error) {
	r, err := s.do(ctx, http.MethodGet, "/metrics")
	if err != nil || r.status != http.StatusOK {
		return 0, unexpected("/metrics", r.status, err)
	}
	for lines := bufio.NewScanner(strings.NewReader(r.body)); lines.Scan(); {
		if sample, _, _ := strings.Cut(lines.Text(), "{"); sample != name {
			continue
		}
		v, err := strconv.ParseFloat(lines.Text()[strings.LastIndexByte(lines.Text(), ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("/metrics: %w", err)
		}
		sum += v
	}
	return sum, nil
}

// until asks again and again.
func until(ctx context.Context, what string, holds func() (bool, error)) error {
	for {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
	}
}

func unexpected(what string, got any, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: got %v", what, got)
}

// scene is what the steps of the show play on.
type scene struct {
	warehouse *Warehouse
	stock     *Stock
	a, b      *shop
	closeA    func() error
	began     time.Time
	out       io.Writer
}

func (s *scene) tell(format string, args ...any) {
	fmt.Fprintf(s.out, "%5.2fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// show has customers collide in two replicas on one store, and checks what they are told.
func show(ctx context.Context, store fx.Option, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("a minute is over"))
	defer cancel()
	s := &scene{warehouse: NewWarehouse(5 * time.Millisecond), began: time.Now(), out: out}
	stock, closeStock, err := openStock(ctx, "127.0.0.1:0", s.warehouse, store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStock()) }()
	a, err := open(ctx, "a", s.warehouse, stock, store)
	if err != nil {
		return err
	}
	s.closeA = sync.OnceValue(a.close)
	defer func() { err = errors.Join(err, s.closeA()) }()
	b, err := open(ctx, "b", s.warehouse, stock, store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	s.stock, s.a, s.b = stock, a, b
	s.tell("replicas a and b serve HTTP on %s and %s, gRPC on %s and %s; the stock is at %s",
		a.at.HTTP, b.at.HTTP, a.at.GRPC, b.at.GRPC, stock.url)

	for _, step := range []func(context.Context) error{s.rush, s.collide, s.lose, s.callOut, s.leave} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	written, err := s.warehouse.Verdict()
	if err != nil {
		return err
	}
	s.tell("the warehouse saw %d changes, never two at one order at once, and none twice", written)
	return nil
}

// rush has many customers pay the same few orders at once.
func (s *scene) rush(ctx context.Context) error {
	const customers, orders = 40, 4
	var (
		replies [customers]later
		got     = make(map[int]int)
	)
	for i := range replies {
		replies[i] = []*shop{s.a, s.b}[i%2].begin(ctx, strconv.Itoa(1+i/2%orders), "pay")
	}
	for _, r := range replies {
		r, err := r()
		if err != nil || r.status != http.StatusOK && r.status != http.StatusConflict && r.status != http.StatusLocked {
			return unexpected("POST /orders/{1..4}/pay", r, err)
		}
		got[r.status]++
	}
	if got[http.StatusOK] != orders {
		return fmt.Errorf("%d of %d orders were paid, by %d customers: %v", got[http.StatusOK], orders, customers, got)
	}
	s.tell("%d times POST /orders/{1..%d}/pay at both: "+
		"%d paid (200), %d came too late (409), %d were refused meanwhile (423)",
		customers, orders, got[http.StatusOK], got[http.StatusConflict], got[http.StatusLocked])
	return nil
}

// collide has one customer in the middle of a payment while others come.
func (s *scene) collide(ctx context.Context) error {
	stop := s.warehouse.StopAt("5")
	defer stop.Release()
	paying := s.a.begin(ctx, "5", "pay")
	if err := stop.Reached(ctx); err != nil {
		return err
	}
	s.tell("a is in the middle of POST /orders/5/pay")

	r, err := s.b.post(ctx, "5", "pay")
	after, _ := strconv.Atoi(r.header.Get("Retry-After"))
	if err != nil || r.status != http.StatusLocked || r.problem.Type != httplock.TypeLocked || after < 1 {
		return unexpected("POST /orders/5/pay while another is at it", r, err)
	}
	s.tell("b refuses POST /orders/5/pay: %d, Retry-After: %d, %s %q",
		r.status, after, r.header.Get("Content-Type"), r.problem.Title)

	_, err = s.b.grpc.Ship(ctx, &shopv1.ShipRequest{OrderId: "5"})
	st, reason, retry := status.Convert(err), "", time.Duration(0)
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			reason = d.Reason
		case *errdetails.RetryInfo:
			retry = d.RetryDelay.AsDuration()
		}
	}
	if st.Code() != codes.Aborted || reason != "LOCKED" || retry <= 0 {
		return unexpected("shop.v1.Orders/Ship while HTTP is at the order", "no error", err)
	}
	s.tell("b refuses gRPC Orders/Ship of order 5, the same lock: %v, %s, RetryInfo %.0fs",
		st.Code(), reason, retry.Seconds())

	shipping := s.b.begin(ctx, "5", "ship")
	err = until(ctx, "nobody waits", func() (bool, error) {
		n, err := s.b.metric(ctx, "mortise_waiting")
		return n == 1, err
	})
	if err != nil {
		return err
	}
	s.tell("b has POST /orders/5/ship wait: its /metrics says mortise_waiting 1")

	stop.Release()
	if r, err := paying(); err != nil || r.order.State != "paid" {
		return unexpected("POST /orders/5/pay", r, err)
	}
	if r, err = shipping(); err != nil || r.order.State != "shipped" {
		return unexpected("POST /orders/5/ship", r, err)
	}
	handoffs, err := s.b.metric(ctx, "mortise_handoffs_total")
	if err != nil || handoffs != 1 {
		return unexpected("mortise_handoffs_total", handoffs, err)
	}
	s.tell("a answers: order 5 is paid; then b: order 5 is shipped; mortise_handoffs_total 1")
	if _, err := s.b.grpc.Ship(ctx, &shopv1.ShipRequest{OrderId: "1"}); err != nil {
		return unexpected("shop.v1.Orders/Ship of a paid order", "an error", err)
	}
	s.tell("b answers gRPC Orders/Ship of order 1: it is shipped")
	return nil
}

// lose has an operator take a lock away under a request.
func (s *scene) lose(ctx context.Context) error {
	stop := s.warehouse.StopAt("6")
	defer stop.Release()
	paying := s.a.begin(ctx, "6", "pay")
	if err := stop.Reached(ctx); err != nil {
		return err
	}
	if held, err := s.b.locks.ForceUnlock(ctx, "orders:6", ""); err != nil || !held {
		return unexpected("ForceUnlock", held, err)
	}
	s.tell("an operator takes order 6's lock away while a is in POST /orders/6/pay")
	r, err := paying()
	if err != nil || r.status != http.StatusInternalServerError || r.problem.Type != httplock.TypeLost {
		return unexpected("POST /orders/6/pay whose lock was lost", r, err)
	}
	if o := s.warehouse.Get("6"); o.State != "open" {
		return fmt.Errorf("order 6 is %s by a request that had lost its lock", o.State)
	}
	s.tell("a hears of it and writes nothing: %d, %q; order 6 is still open", r.status, r.problem.Title)
	return nil
}

// callOut has a replica call the stock while it holds the order's lock, and others try the same from outside.
func (s *scene) callOut(ctx context.Context) error {
	if r, err := s.b.post(ctx, "8", "pay"); err != nil || r.order.State != "paid" {
		return unexpected("POST /orders/8/pay", r, err)
	}
	stop := s.warehouse.StopAt("8")
	defer stop.Release()
	shipping := s.a.begin(ctx, "8", "ship")
	if err := stop.Reached(ctx); err != nil {
		return err
	}
	if n := s.warehouse.Taken("8"); n != 1 {
		return fmt.Errorf("order 8's goods were taken %d times", n)
	}
	s.tell("a is in the middle of POST /orders/8/ship: the stock has taken the goods, under the lock that a holds")

	if err := s.stock.Take(ctx, "8"); err == nil || !strings.Contains(err.Error(), httplock.TypeLocked) {
		return unexpected("the stock, called by somebody who does not hold the order", "no error", err)
	}
	forged, err := newKeys()
	if err != nil {
		return err
	}
	impostor, err := NewStock(s.stock.url, forged)
	if err != nil {
		return err
	}
	err = mortise.Do(ctx, s.b.locks, "orders:9", func(ctx context.Context) error { return impostor.Take(ctx, "8") })
	if err == nil || !strings.Contains(err.Error(), httplock.TypeBadDelegation) {
		return unexpected("the stock, called with an entry of somebody else's making", "no error", err)
	}
	s.tell("the stock refuses one who does not hold the order (423), and one who signs with a key of his own (403)")

	stop.Release()
	if r, err := shipping(); err != nil || r.order.State != "shipped" {
		return unexpected("POST /orders/8/ship", r, err)
	}
	s.tell("a answers: order 8 is shipped")
	return nil
}

// leave has a replica shut down while it serves.
func (s *scene) leave(ctx context.Context) error {
	stop := s.warehouse.StopAt("7")
	defer stop.Release()
	paying := s.a.begin(ctx, "7", "pay")
	if err := stop.Reached(ctx); err != nil {
		return err
	}
	stopped := make(chan error, 1)
	go func() { stopped <- s.closeA() }()
	err := until(ctx, "a still takes connections", func() (bool, error) {
		conn, err := net.Dial("tcp", s.a.at.HTTP)
		if err != nil {
			return true, nil
		}
		return false, conn.Close()
	})
	if err != nil {
		return err
	}
	if r, err := s.b.post(ctx, "7", "pay"); err != nil || r.status != http.StatusLocked {
		return unexpected("POST /orders/7/pay while a, which shuts down, is at it", r, err)
	}
	stop.Release()
	if r, err := paying(); err != nil || r.order.State != "paid" {
		return unexpected("POST /orders/7/pay of a, which shuts down", r, err)
	}
	if err := <-stopped; err != nil {
		return fmt.Errorf("a shuts down: %w", err)
	}
	r, err := s.b.post(ctx, "7", "ship")
	if err != nil || r.order.State != "shipped" {
		return unexpected("POST /orders/7/ship", r, err)
	}
	s.tell("a shuts down in the middle of POST /orders/7/pay, and answers it first; b goes on: order 7 is shipped")
	return nil
}
