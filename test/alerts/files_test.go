package alerts

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/middleware/telemetry"
)

func read(t *testing.T, path string) string {
	t.Helper()
	return string(check.Value(os.ReadFile(path)).In(t))
}

// The rules are valid, and each fires and is silent on series written by hand.
func TestRules(t *testing.T) {
	if said, passed := promtool(t, "check", "rules", rules); !passed {
		t.Error(said)
	}
	if said, passed := promtool(t, "test", "rules", "../../docs/alerts/mortise_test.yml"); !passed {
		t.Error(said)
	}
}

// Each alert is tested on real servers here and on series in mortise_test.yml, twice, and the page of the alerts says
// what to do about it, where its runbook_url points to.
func TestEachAlertIsTestedAndExplained(t *testing.T) {
	yml, page := read(t, rules), read(t, "../../docs/how-to/alerts.md")
	units, here := read(t, "../../docs/alerts/mortise_test.yml"), read(t, "alerts_test.go")
	alerts := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(yml, -1)
	if len(alerts) < 10 {
		t.Fatalf("%d alerts", len(alerts))
	}
	for _, m := range alerts {
		name := m[1]
		for what, found := range map[string]bool{
			"a test that breaks something":   strings.Contains(here, `s.fires("`+name+`")`),
			"series on which it fires":       strings.Contains(units, "name: "+name+" fires\n"),
			"series on which it is silent":   strings.Contains(units, "name: "+name+" is silent\n"),
			"a section in the page":          strings.Contains(page, "\n### "+name+"\n"),
			"a row in the page's table":      strings.Contains(page, "| ["+name+"](#"+strings.ToLower(name)+") |"),
			"a runbook_url for that section": strings.Contains(yml, "/how-to/alerts/#"+strings.ToLower(name)+"\n"),
		} {
			check.ErrorIf(t, !found, "%s lacks %s", name, what)
		}
	}
}

// The page's prometheus.yml is one.
func TestPrometheusYML(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(read(t, "../../docs/how-to/alerts.md"))
	if block == nil {
		t.Fatal("the page has no prometheus.yml")
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	check.NoError(t, os.WriteFile(config, []byte(block[1]), 0o600))
	check.NoError(t, os.WriteFile(filepath.Join(dir, "mortise.yml"), []byte(read(t, rules)), 0o600))
	if said, passed := promtool(t, "check", "config", config); !passed {
		t.Error(said)
	}
}

// exprs are the queries of the dashboard, with values for its variables.
func exprs(t *testing.T) (all []string) {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	check.NoError(t, json.Unmarshal([]byte(read(t, "../../docs/alerts/dashboard.json")), &board))
	values := strings.NewReplacer("$job", ".*", "$instance", ".*", "$__rate_interval", "1m", "$__range", "10m")
	legend := regexp.MustCompile(`{{(\w+)}}`)
	for _, p := range board.Panels {
		check.ErrorIf(t, len(p.Targets) == 0, "%s asks for nothing", p.Title)
		for _, x := range p.Targets {
			for _, label := range legend.FindAllStringSubmatch(x.LegendFormat, -1) {
				check.ErrorIf(t, !strings.Contains(x.Expr, label[1]), "%s: no %s in %s", p.Title, label[1], x.Expr)
			}
			all = append(all, values.Replace(x.Expr))
		}
	}
	return all
}

// Each query of the dashboard finds something in what a client reports that was through all there is, and each metric
// is asked for.
func TestDashboard(t *testing.T) {
	s := newSite(t)
	server := redistest.Start(t)
	c := s.client(server.Addr(), "")
	ring := check.Value(delegation.NewRing(delegation.NewKey("k1",
		[]byte("thirty-two bytes and some more, of a test")))).In(t)
	watched := delegation.WithObserver(check.Value(telemetry.Delegations(telemetry.WithMeterProvider(s.metrics))).In(t))
	issuer := check.Value(delegation.NewIssuer(ring, watched, delegation.WithNameFilter(
		func(_, name string) bool { return name == "orders:42" }))).In(t)
	checker := check.Value(delegation.NewChecker(ring, "stock", watched)).In(t)
	held := check.Value(c.Lock(background, "orders:42")).In(t)
	inner := check.Value(c.Lock(held.Context(), "left out")).In(t)
	for range 20 {
		entry := check.Value(issuer.Issue(inner.Context(), "stock")).In(t)
		checker.Check(background, entry)
		work := func(context.Context) error { time.Sleep(pace / 2); return nil }
		waiter := make(chan error)
		go func() { waiter <- mortise.Do(background, c, "orders:43", work) }()
		check.NoError(t, mortise.Do(background, c, "orders:43", work))
		check.NoError(t, <-waiter)
		s.keep(1)
	}
	server.Stop()
	<-held.Context().Done()
	c.TryLock(background, "orders:42")
	s.keep(5)

	all := s.series()
	asked := make(map[string]bool)
	metric := regexp.MustCompile(`mortise_[a-z_]+(?:{|\b)`)
	for _, expr := range exprs(t) {
		found := false
		for at := range s.samples {
			one := 1.
			q := question{expr: "count(" + expr + ") > bool 0", at: time.Duration(at) * step, want: &one}
			if at < 5 || at%5 != 0 && at != s.samples-1 {
				continue
			}
			if _, found = answered(t, all, q); found {
				break
			}
		}
		check.ErrorIf(t, !found, "nothing answers %s", expr)
		for _, m := range metric.FindAllString(expr, -1) {
			asked[instrument(strings.TrimSuffix(m, "{"))] = true
		}
	}
	for _, x := range all {
		name, _, _ := strings.Cut(x.Series, "{")
		if strings.HasPrefix(name, "mortise_") && !asked[instrument(name)] {
			t.Errorf("no panel asks for %s", name)
			asked[instrument(name)] = true
		}
	}
	files := check.Value(filepath.Glob("../../docs/alerts/*.json")).In(t)
	check.ErrorIf(t, len(files) != 1, "a dashboard that no test reads: %v", files)
}

// instrument is a metric's name without what a histogram has after it.
func instrument(name string) string {
	for _, s := range []string{"_bucket", "_sum", "_count"} {
		name = strings.TrimSuffix(name, s)
	}
	return name
}
