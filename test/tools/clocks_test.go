package tools

import (
	"go/ast"
	"strings"
	"testing"
)

// knownClocks are the test files of `make test` that sleep or measure outside of a bubble. The list may only shrink.
const knownClocks = `
	backend/backendtest/age.go
	backend/backendtest/counts.go
	backend/backendtest/delegation.go
	backend/backendtest/enrolment.go
	backend/backendtest/env.go
	backend/backendtest/exclusion.go
	backend/backendtest/fair.go
	backend/backendtest/handover.go
	backend/backendtest/kinds.go
	backend/backendtest/limits.go
	backend/backendtest/lockall.go
	backend/backendtest/port.go
	backend/backendtest/readwrite.go
	backend/backendtest/renewal.go
	backend/backendtest/replicas.go
	backend/backendtest/shutdown.go
	backend/backendtest/ticks.go
	backend/backendtest/waiting.go
	backend/memory/bare_test.go
	backend/memory/queue_test.go
	backend/redisproto/batcher/batcher_test.go
	backend/redisproto/fuzz_test.go
	backend/redisproto/hostile_test.go
	backend/redisproto/joint_server_test.go
	backend/redisproto/lone/lone_test.go
	backend/redisproto/queue_test.go
	backend/redisproto/server_test.go
	backend/redisproto/subscriptions_test.go
	backend/redisproto/turns_test.go
	backend/valkey/valkey_test.go
	examples/apps/orders/main_test.go
	examples/costs_test.go
	examples/kleppmann_test.go
	gocron/gocronlock_test.go
	internal/clienttest/countingsemaphore_test.go
	internal/clienttest/delegation_test.go
	internal/clienttest/handoff_test.go
	internal/clienttest/harness_test.go
	internal/clienttest/lease_test.go
	internal/clienttest/lockall_test.go
	internal/clienttest/lockall_waits_test.go
	internal/clienttest/quorum_test.go
	internal/clienttest/random_test.go
	internal/clienttest/reentry_test.go
	internal/clienttest/renewal_test.go
	internal/clienttest/replicas_test.go
	internal/clienttest/rw_test.go
	internal/clienttest/semaphore_test.go
	internal/clienttest/spy_test.go
	internal/clienttest/timeouts_test.go
	internal/clienttest/verify_test.go
	internal/clienttest/waiting_test.go
	internal/timerq/timerq_test.go
	middleware/httplock/conn_test.go
	middleware/httplock/gone_test.go
	middleware/httplock/late_test.go
	middleware/httplock/loss_test.go
	once/once_test.go
	redisgo/redisgo_test.go
	redisgo/shell_test.go
	rueidis/lone_test.go
	semaphore/example_test.go
	test/faults/costs_test.go
`

// A test of the short tier awaits events: what it sleeps through, or measures, is another time on a busy machine. In
// a bubble of testing/synctest both are exact. Tests that check.Long leaves to `make verify` may do both.
func TestShortTestsNeitherSleepNorMeasure(t *testing.T) {
	found := make(map[string]bool)
	for _, f := range goFiles(t) {
		if (f.test() || f.within("backend/backendtest")) && (!f.within("test") || f.path == "test/faults/costs_test.go") {
			for _, d := range f.syntax.Decls {
				if usesClock(d) {
					found[f.path] = true
				}
			}
		}
	}
	onlyKnown(t, found, knownClocks, "a test of make test that calls time.Sleep or time.Since outside of a bubble")
}

func TestUsesOfTheClockAreFound(t *testing.T) {
	for body, want := range map[string]bool{
		"time.Sleep(1)": true,
		"go func() { check(time.Since(began) < 1) }()": true,
		"time.Now()":                   false,
		"check.Long(t); time.Sleep(1)": false,
		"synctest.Test(t, func(t *testing.T) { time.Sleep(1) })": false,
		"bubble(t, func(t *testing.T) { time.Since(began) })":    false,
		"synctest.Test(t, func(t *testing.T) {}); time.Sleep(1)": true,
	} {
		if got := usesClock(parse(t, "package p\nfunc F(t *testing.T) {"+body+"}\n").Decls[0]); got != want {
			t.Errorf("%s: %v, want %v", body, got, want)
		}
	}
}

// usesClock reports whether a declaration calls time.Sleep or time.Since outside of a bubble, and not in a long test.
func usesClock(d ast.Decl) (uses bool) {
	long := false
	ast.Inspect(d, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name, of := "", ""
		switch f := call.Fun.(type) {
		case *ast.Ident:
			name = f.Name
		case *ast.SelectorExpr:
			name = f.Sel.Name
			if id, ok := f.X.(*ast.Ident); ok {
				of = id.Name
			}
		}
		uses = uses || of == "time" && (name == "Sleep" || name == "Since")
		long = long || of == "check" && name == "Long"
		return !strings.HasSuffix(strings.ToLower(name), "bubble") && !(of == "synctest" && name == "Test")
	})
	return uses && !long
}
