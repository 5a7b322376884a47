//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/fx"

	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/fxmodule"
	"github.com/mortise-go/mortise/internal/redistest"
)

// patience bounds everything that a test waits for.
const patience = time.Minute

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func check(t *testing.T, addr, client string) {
	t.Helper()
	var out strings.Builder
	if err := run(bounded(t), addr, client, Addresses{}, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	t.Logf("\n%s", &out)
}

func TestTheShowInMemory(t *testing.T) { check(t, "", "") }

func TestTheShowOnRedis(t *testing.T) {
	t.Parallel()
	for _, client := range []string{"go-redis", "rueidis"} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			check(t, server.Addr(), client)
			if n := server.Must("DBSIZE"); n != int64(0) {
				t.Errorf("%v keys are left: %v", n, server.Must("KEYS", "*"))
			}
		})
	}
}

func TestThereIsNoOtherClient(t *testing.T) {
	err := run(bounded(t), "127.0.0.1:1", "redigo", Addresses{}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "redigo") {
		t.Error(err)
	}
}

// The show is no proof unless it fails where replicas do not share their locks.
func TestTheShowFailsWithoutACommonStore(t *testing.T) {
	var out strings.Builder
	err := show(bounded(t), fxmodule.Memory(fxmodule.ClientOptions(watchdog)), &out)
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v\n%s", err, &out)
	}
	t.Log(err)
}

func TestTheWarehouseNoticesTwoAtOnce(t *testing.T) {
	ctx := bounded(t)
	w := NewWarehouse(0)
	stop := w.StopAt("1")
	first := make(chan error, 1)
	go func() {
		_, err := w.Change(ctx, "1", pay)
		first <- err
	}()
	if err := stop.Reached(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Change(ctx, "1", pay); err != nil {
		t.Error(err)
	}
	stop.Release()
	if err := <-first; err != nil {
		t.Error(err)
	}
	if _, err := w.Verdict(); err == nil || !strings.Contains(err.Error(), "at once") {
		t.Errorf("the verdict: %v", err)
	}
	w.most = 1 // had it not been seen
	if _, err := w.Verdict(); err == nil || !strings.Contains(err.Error(), "[paid paid]") {
		t.Errorf("the verdict on what was written: %v", err)
	}
}

// With -serve: a request that runs when the interrupt comes is answered.
func TestServeEndsInGoodOrder(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(bounded(t))
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, "", "", Addresses{"127.0.0.1:0", "127.0.0.1:0"}, w)
		w.CloseWithError(err)
		ended <- err
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	addr, _, _ := strings.Cut(strings.TrimPrefix(line, "HTTP on "), ",")
	s := &shop{at: Addresses{HTTP: addr}, http: &http.Client{Transport: new(http.Transport)}}
	paying := s.begin(bounded(t), "1", "pay")
	err = until(ctx, "nobody gets the lock", func() (bool, error) {
		n, err := s.metric(ctx, "mortise_wait_seconds_count")
		return n > 0, err
	})
	if err != nil {
		t.Fatal(err)
	}
	interrupt()
	if r, err := paying(); err != nil || r.order.State != "paid" {
		t.Errorf("POST /orders/1/pay: %v, %v", r, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := s.metric(bounded(t), "mortise_wait_seconds_count"); err == nil {
		t.Error("it still serves")
	}
}

var (
	// Of /metrics: a line, and a label in it.
	sample = regexp.MustCompile(`(?m)^(mortise_\w+)\{(.*)\} `)
	label  = regexp.MustCompile(`(\w+)="[^"]*"`)
	// Of the dashboard: a metric with its selector, or a label; and a label in a legend.
	query  = regexp.MustCompile(`(mortise_\w+)(\{([^}]*)\})?`)
	legend = regexp.MustCompile(`mortise_\w+`)
)

func TestTheDashboardAsksForWhatIsExported(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	store := memory.New()
	s, err := open(ctx, "a", NewWarehouse(0), new(Stock), fx.Options(fx.Supply(store),
		fxmodule.Memory(fxmodule.ClientOptions(watchdog))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	seen := func(metric string) {
		t.Helper()
		err := until(ctx, metric, func() (bool, error) {
			n, err := s.metric(ctx, metric)
			return n > 0, err
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	// All that can happen to a lock: it is renewed, and cannot be; it is refused, waited for, lost and handed over.
	lease, err := s.locks.Lock(ctx, "orders:1")
	if err != nil {
		t.Fatal(err)
	}
	seen("mortise_renewal_seconds_count")
	store.SetDown(errors.New("no answer"))
	seen("mortise_renewal_failures_total")
	store.SetDown(nil)
	if r, err := s.post(ctx, "1", "pay"); err != nil || r.status != http.StatusLocked {
		t.Fatalf("POST /orders/1/pay: %v, %v", r, err)
	}
	shipping := s.begin(ctx, "1", "ship")
	seen("mortise_waiting")
	if _, err := s.locks.ForceUnlock(ctx, "orders:1", ""); err != nil {
		t.Fatal(err)
	}
	if r, err := shipping(); err != nil || r.status != http.StatusConflict {
		t.Fatalf("POST /orders/1/ship of an open order: %v, %v", r, err)
	}
	<-lease.Context().Done()
	seen("mortise_lost_total")

	r, err := s.do(ctx, http.MethodGet, "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	labels := make(map[string]map[string]bool) // of a metric, also those with their value
	for _, m := range sample.FindAllStringSubmatch(r.body, -1) {
		if labels[m[1]] == nil {
			labels[m[1]] = map[string]bool{"job": true} // Prometheus adds that
		}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			labels[m[1]][l[1]], labels[m[1]][l[0]] = true, true
		}
	}
	unasked := make(map[string]bool)
	for name := range labels {
		unasked[instrument(name)] = true
	}

	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	data, err := os.ReadFile("grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("%s asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			var of map[string]bool
			var names []string
			for _, m := range query.FindAllStringSubmatch(target.Expr, -1) {
				if m[2] == "" {
					names = append(names, m[1]) // of a label, in by (...)
					continue
				}
				if of = labels[m[1]]; of == nil {
					t.Errorf("%s: there is no %s", p.Title, m[1])
				}
				delete(unasked, instrument(m[1]))
				for _, l := range strings.Split(m[3], ", ") {
					if l != `job=~"$job"` && !of[l] {
						t.Errorf("%s: %s has no %s", p.Title, m[1], l)
					}
				}
			}
			if of == nil {
				t.Errorf("%s: this asks for nothing of mortise: %s", p.Title, target.Expr)
			}
			for _, l := range append(names, legend.FindAllString(target.LegendFormat, -1)...) {
				if !of[l] {
					t.Errorf("%s: there is no label %s: %s", p.Title, l, target.Expr)
				}
			}
		}
	}
	for name := range unasked {
		t.Errorf("no panel asks for %s", name)
	}
}

// instrument is a metric's name without what a histogram has after it.
func instrument(name string) string {
	for _, s := range []string{"_bucket", "_sum", "_count"} {
		name = strings.TrimSuffix(name, s)
	}
	return name
}
