package alerts

import (
	"bufio"
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/middleware/telemetry"
	"github.com/mortise-go/mortise/redisgo"
)

const (
	watchdog = 3 * time.Second
	// pace is how often a sample is taken, unless said otherwise; it stands for step.
	pace = 100 * time.Millisecond
	// patience bounds how long an alert may take to fire.
	patience = 2 * time.Minute
)

// site is a service whose metrics are scraped.
type site struct {
	*testing.T
	registry *prometheus.Registry
	metrics  *metric.MeterProvider // of all clients; nil before the first
	values   map[string][]string   // by series, one for each sample; "_" where there is none
	pace     time.Duration
	samples  int
	healthy  int // samples before anything was broken
}

func newSite(t *testing.T) *site {
	t.Parallel()
	return &site{T: t, registry: prometheus.NewRegistry(), pace: pace, values: make(map[string][]string)}
}

// client opens a client on a server, which reports to Prometheus.
func (s *site) client(addr, name string, opts ...mortise.ClientOption) *mortise.Client {
	s.Helper()
	if s.metrics == nil {
		e := check.Value(exporter.New(exporter.WithRegisterer(s.registry))).In(s)
		s.metrics = metric.NewMeterProvider(metric.WithReader(e))
	}
	observer := check.Value(telemetry.New(telemetry.WithMeterProvider(s.metrics))).In(s)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	c := check.Value(mortise.New(redisgo.New(rdb), append(opts, mortise.WithObserver(observer),
		mortise.WithName(name), mortise.WithWatchdogTimeout(watchdog))...)).In(s)
	s.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		c.Shutdown(ended)
		rdb.Close()
	})
	return c
}

// scrape takes a sample of all metrics, as Prometheus does.
func (s *site) scrape() {
	s.Helper()
	reply := httptest.NewRecorder()
	promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}).ServeHTTP(reply, httptest.NewRequest("GET", "/metrics", nil))
	check.FatalIf(s, reply.Code != 200, "the scrape failed: %s", reply.Body)
	lines := bufio.NewScanner(reply.Body)
	for lines.Scan() {
		if line := lines.Text(); !strings.HasPrefix(line, "#") {
			s.add(line)
		}
	}
	s.samples++
	for name, all := range s.values {
		if len(all) < s.samples {
			s.values[name] = append(all, "_")
		}
	}
}

// add adds a line of a scrape: a metric, labels in braces or none, a value.
func (s *site) add(line string) {
	s.Helper()
	at := strings.LastIndexByte(line, ' ')
	name, value := line[:at], line[at+1:]
	bare, labels, some := strings.Cut(name, "{")
	name = bare + `{job="orders",instance="a"`
	if some {
		name += "," + labels
	} else {
		name += "}"
	}
	if bare == "mortise_hold_oldest_seconds" { // an age is stretched as the time between samples is
		age := check.Value(strconv.ParseFloat(value, 64)).In(s)
		value = fmt.Sprint(age * float64(step) / float64(s.pace))
	}
	all := s.values[name]
	for len(all) < s.samples {
		all = append(all, "_")
	}
	s.values[name] = append(all, value)
}

// keep takes n samples.
func (s *site) keep(n int) {
	s.Helper()
	for range n {
		s.scrape()
		time.Sleep(s.pace) // the distance of samples, not a wait for something
	}
}

// until takes samples until a metric is there.
func (s *site) until(metric string) {
	s.Helper()
	for begun := time.Now(); time.Since(begun) < patience; {
		s.keep(1)
		for name := range s.values {
			if strings.HasPrefix(name, metric+"{") {
				return
			}
		}
	}
	s.Fatalf("no %s within %v", metric, patience)
}

// baseline takes samples of a healthy service: it takes and releases a lock.
func (s *site) baseline(c mortise.Locker) {
	s.Helper()
	for range 40 {
		check.NoError(s, mortise.Do(context.Background(), c, "baseline", func(context.Context) error { return nil }))
		s.keep(1)
	}
	s.healthy = s.samples
}

func (s *site) series() (all []series) {
	for name, values := range s.values {
		all = append(all, series{name, strings.Join(values, " ")})
	}
	slices.SortFunc(all, func(a, b series) int { return strings.Compare(a.Series, b.Series) })
	return all
}

// firing asks for an alert, or for all if it is empty, at a sample.
func firing(alert string, sample int) question {
	which := `alertstate="firing"`
	if alert != "" {
		which += fmt.Sprintf(`,alertname=%q`, alert)
	}
	return question{expr: fmt.Sprintf("count(ALERTS{%s}) > bool 0", which), at: time.Duration(sample-1) * step}
}

// fires takes samples until an alert fires. None fires while the service is healthy.
func (s *site) fires(alert string) {
	s.Helper()
	if said, none := answered(s.T, s.series(), firing("", s.healthy)); !none {
		s.Fatalf("an alert fires while all is well: %s", said)
	}
	one := 1.
	for begun := time.Now(); time.Since(begun) < patience; {
		s.keep(5)
		q := firing(alert, s.samples)
		q.want = &one
		if _, yes := answered(s.T, s.series(), q); yes {
			s.Logf("fires %v after the last healthy sample", time.Duration(s.samples-s.healthy)*step)
			return
		}
	}
	for _, x := range s.series() {
		if !strings.Contains(x.Series, "_bucket{") {
			s.Log(x.Series, x.Values)
		}
	}
	s.Fatalf("%s does not fire within %v", alert, patience)
}

// silent says that an alert does not fire at the last sample.
func (s *site) silent(alert string) {
	s.Helper()
	if said, none := answered(s.T, s.series(), firing(alert, s.samples)); !none {
		s.Errorf("%s fires: %s", alert, said)
	}
}
