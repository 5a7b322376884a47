package alerts

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest/check"
)

const (
	rules = "../../docs/alerts/mortise.yml"
	// step is how much of the rules' time is between two samples.
	step = 15 * time.Second
)

// promtool runs it, and returns what it says if it fails.
func promtool(t *testing.T, args ...string) (said string, passed bool) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	check.FatalIf(t, err != nil, "the tests need promtool, of Debian's package prometheus: %v", err)
	out, err := exec.Command(path, args...).CombinedOutput()
	return string(out), err == nil
}

// series is a time series as promtool reads it.
type series struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

// question is an expression, when it is asked, and its only value without labels; no value if it is nil.
type question struct {
	expr string
	at   time.Duration
	want *float64
}

// answered reports whether the rules, over the series, answer a question so, and else what they answer.
func answered(t *testing.T, all []series, q question) (string, bool) {
	t.Helper()
	type sample struct {
		Labels string  `json:"labels"`
		Value  float64 `json:"value"`
	}
	type expectation struct {
		Expr        string   `json:"expr"`
		EvalTime    string   `json:"eval_time"`
		ExpectedAre []sample `json:"exp_samples"`
	}
	type test struct {
		Interval string        `json:"interval"`
		Series   []series      `json:"input_series"`
		Tests    []expectation `json:"promql_expr_test"`
	}
	e := expectation{Expr: q.expr, EvalTime: fmt.Sprintf("%ds", int(q.at.Seconds()))}
	if q.want != nil {
		e.ExpectedAre = []sample{{"{}", *q.want}}
	}
	path := check.Value(filepath.Abs(rules)).In(t)
	file := check.Value(json.Marshal(map[string]any{ // JSON is YAML
		"rule_files": []string{path}, "evaluation_interval": fmt.Sprintf("%ds", int(step.Seconds())),
		"tests": []test{{fmt.Sprintf("%ds", int(step.Seconds())), all, []expectation{e}}},
	})).In(t)
	name := filepath.Join(t.TempDir(), "test.yml")
	check.NoError(t, os.WriteFile(name, file, 0o600))
	return promtool(t, "test", "rules", name)
}
