// Package backendtest is the conformance suite that every backend passes. The
// author of a backend calls it from a test:
//
//	func TestConformance(t *testing.T) {
//		backendtest.Run(t, func(t *testing.T) backendtest.Store { return newStore(t) })
//	}
//
// The tests whose names begin with Port go through the obligations of
// [backend.Store] one by one. Those that begin with a rule's number run the whole
// of mortise over the backend and hold it to the rules of docs/explanation/guarantees.md;
// each rule has tests on each backend.
//
// Tests run in parallel, each on a store of its own. Some spend most of their
// time waiting for leases to run out, so `go test -parallel 16` is quicker than the default;
// -short leaves those out on stores outside this process, and [RunInBubbles] takes no time for them.
// [Faults] is what the suite injects faults with, for tests beyond it.
package backendtest

import (
	"path"
	"runtime/pprof"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/timed"
)

// Store is a store under test, empty when it is opened. It is closed by the
// test's Cleanup. Its methods fail the test where they cannot do what they say. A store of
// several servers has a method Servers() int as well: connections grow with these. One with replicas that
// can be waited for has a method Replicas() int. One that keeps all that belongs to a name as one value has a
// method OneValue(): its Delete and Occupy remove queues and claims, too, and a name has no keys beside it.
type Store interface {
	// Backend returns a backend for one more client on this store. It is called
	// while the store is up. What the backend needs is freed by the test's Cleanup, where closing the
	// session does not do it.
	Backend() backend.Backend
	// Delete removes the record under name behind mortise's back.
	Delete(name string)
	// Flush removes everything behind mortise's back.
	Flush()
	// Occupy puts data under name that is no lock, in place of what is there.
	Occupy(name string)
	// Cut breaks every connection there is, and with them all watching. New
	// connections are accepted at once.
	Cut()
	// Down stops the store: until Up, connections are broken and refused.
	Down()
	// Up starts the store again, with its records or empty.
	Up()
	// Connections counts the connections to the store; always 0 where there are none.
	Connections() int
}

// Run runs the suite. open makes a new and empty store.
func Run(t *testing.T, open func(t *testing.T) Store) {
	RunSome(t, open, func(string) bool { return true })
}

// RunInBubbles runs the suite, each test in a bubble of [testing/synctest]: the leases of minutes end in no time, and
// the pace of the machine changes nothing. It is for stores within this process, without connections.
func RunInBubbles(t *testing.T, open func(t *testing.T) Store) {
	run(t, open, func(string) bool { return true }, nil, func(t *testing.T, f func(*testing.T)) {
		inBubble(t, func(t *testing.T) {
			began := time.Now()
			f(t)
			if d, name := time.Since(began), path.Base(t.Name()); d > quarter && !slow[name] {
				t.Errorf("%s takes %v: its name belongs into slow, in slow.go", name, d)
			}
		})
	})
}

// RunSomeInBubbles runs, in bubbles, the tests whose names are chosen: on a server within this process, say, whose
// connections are of net.Pipe. It fails if none is.
func RunSomeInBubbles(t *testing.T, open func(t *testing.T) Store, chosen func(name string) bool) {
	run(t, open, chosen, nil, inBubble)
}

func inBubble(t *testing.T, f func(*testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Second) }) // requests that a hook of the test delays reach their end
		f(t)
	})
}

// RunSome runs the tests whose names are chosen, for another setup of a store that passes
// the whole suite elsewhere. It fails if none is.
//
// With -short, tests whose subject takes longer than a quarter of a second are left out.
func RunSome(t *testing.T, open func(t *testing.T) Store, chosen func(name string) bool) {
	quick := func(name string) bool { return chosen(name) && !(testing.Short() && slow[name]) }
	run(t, open, quick, timed.Test(t), func(t *testing.T, f func(*testing.T)) { f(t) })
}

// run runs the tests, each by in. machine is nil where the pace of the machine changes nothing.
func run(t *testing.T, open func(t *testing.T) Store, chosen func(name string) bool, machine *timed.Machine,
	in func(*testing.T, func(*testing.T))) {
	none := true
	defer func() {
		if none {
			t.Error("no test was chosen")
		}
	}()
	for _, group := range [][]test{
		portTests, exclusionTests, tokenTests, renewalTests, reentryTests, waitingTests, releaseTests,
		interruptionTests, errorTests, shutdownTests, handlerTests, relayTests, handOverTests, countTests, limitTests,
		rwPortTests, rwRuleTests, operatorTests, listTests, enrolmentTests, enrolmentGrantTests, fairTests,
		pairingTests, multiTests, ageTests, nestTests, replicaTests, modelTests, tickTests, proclamationTests,
	} {
		for _, x := range group {
			if !chosen(x.name) {
				continue
			}
			none = false
			t.Run(x.name, func(t *testing.T) {
				t.Parallel()
				in(t, func(t *testing.T) {
					// Goroutines inherit labels, so that they can be counted by test.
					pprof.SetGoroutineLabels(pprof.WithLabels(background, pprof.Labels(label, t.Name())))
					x.run(&env{leases{checks{t}}, open(t), machine})
				})
			})
		}
	}
}

// test is one statement about a backend.
type test struct {
	name string
	run  func(*env)
}

// where skips the tests on a backend that lacks what they are about.
func where(has func(*env) bool, things string, tests []test) []test {
	for i, x := range tests {
		tests[i].run = func(e *env) {
			if !has(e) {
				e.lacks(things)
			}
			x.run(e)
		}
	}
	return tests
}

// lacks skips a test of a capability that the backend has not. The rules' matrix lists what it says.
func (e *env) lacks(things string) {
	e.Helper()
	e.Skipf("the backend lacks %s", things)
}
