//go:build linux

package bench

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise/test/internal/harness"
)

// outcome is one run of a workload by one contender.
type outcome struct {
	rate       float64 // ops, or handoffs, per second
	p50        float64 // µs
	p99        float64
	max        float64
	mean       float64
	jain       float64
	held       float64 // µs
	cpu        float64 // µs of the clients' for each op
	server     float64 // µs of the server's for each op
	allocs     float64
	bytes      float64
	goroutines float64 // of all processes; Java's threads
	conns      float64
	commands   float64 // for each op; only where they were counted
	sent       float64 // the same from the beginning to the end, what a beginning and an end cost included
	switches   float64 // of the clients' threads, for each op
	parts      [parts]float64
}

// watch is what a run is for beside its times, which it costs.
type watch int

const (
	nothing   watch = iota
	sending         // count commands
	profiling       // see where the clients' time goes
)

// figures are those that every run measures, in an order of their own.
func (o *outcome) figures() []*float64 {
	return []*float64{
		&o.rate, &o.p50, &o.p99, &o.max, &o.mean, &o.jain, &o.held, &o.cpu, &o.server,
		&o.allocs, &o.bytes, &o.goroutines, &o.conns,
	}
}

// settle bounds how long is waited for everybody to have been served once, which is where
// the window begins: with a queue that is not fair somebody may wait for ever. A window is ten turns of
// each, so a fifth of it is two.
func settle(window time.Duration) time.Duration { return 500*time.Millisecond + window/5 }

// bound is more than any run takes.
const bound = 2 * time.Minute

var runs atomic.Int64

// run is one run, on a server that is emptied before.
func (w workload) run(t testing.TB, h *hosts, c contender, window time.Duration, what watch) (*outcome, error) {
	t.Helper()
	s := h.store(c)
	s.empty(t)
	run := runs.Add(1)
	path := filepath.Join(t.TempDir(), "witness")
	witness := harness.Must(openWitness(path))(t)
	defer witness.close()
	crew, release, err := h.crew(c, w.processes)
	defer release()
	if err != nil {
		return nil, err
	}
	for p, m := range crew {
		k := task{
			Contender: c.name, Addr: s.addr(w.slow), Witness: path, Process: p, Run: run, Goroutines: w.goroutines,
			Shared: w.shared, Try: w.try, Hold: w.hold, Fair: c.fair, Profile: what == profiling,
		}
		if err := m.give(k, bound); err != nil {
			return nil, err
		}
	}
	for _, m := range crew {
		if err := m.ready(); err != nil {
			return nil, err
		}
	}
	var counted meter
	if what == sending {
		counted = s.meter(t)
	}
	for _, m := range crew {
		if err := m.tell("begin"); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	for witness.served.Load() < int64(w.waiters()) && time.Since(began) < settle(window) {
		time.Sleep(time.Millisecond) // it looks at shared memory
	}

	before := s.cpu(t)
	if counted != nil {
		counted.mark(t)
	}
	began = time.Now()
	witness.phase.Store(measuring)
	for _, m := range crew {
		if err := m.tell("measure"); err != nil {
			return nil, err
		}
	}
	for time.Since(began) < window || witness.ops.Load() == 0 && time.Since(began) < 15*time.Second { // a machine may stand still
		time.Sleep(max(time.Until(began.Add(window)), time.Millisecond))
	}
	conns := s.connections(t)
	witness.phase.Store(over)
	took := time.Since(began)
	if counted != nil {
		counted.mark(t)
	}
	used := s.cpu(t) - before
	for _, m := range crew {
		if err := m.tell("end"); err != nil {
			return nil, err
		}
	}

	o := &outcome{}
	var waits []float64
	var each []int
	ops, all, between, goroutines := 0, 0, 0, 0
	for _, m := range crew {
		var r report
		if err := m.report(&r); err != nil {
			return nil, err
		}
		if r.Error != "" {
			return nil, errors.New(r.Error)
		}
		if r.Failures > 0 {
			t.Logf("%s, %s: %d calls failed", w.name, c.name, r.Failures)
		}
		n := float64(len(r.Waits))
		ops += len(r.Waits)
		all += r.All
		between += r.Between
		o.held += r.Held * n
		o.cpu += r.CPU
		o.allocs += r.Allocs
		o.bytes += r.Bytes
		goroutines += r.Goroutines
		o.switches += r.Switches
		for i, v := range r.Parts {
			o.parts[i] += v / float64(len(crew))
		}
		waits = append(waits, r.Waits...)
		each = append(each, r.Each...)
	}
	if n := witness.violations.Load(); n > 0 {
		return nil, fmt.Errorf("%d times somebody was inside already", n)
	}
	if ops == 0 {
		return nil, errors.New("nobody got anything")
	}
	n := float64(ops)
	o.rate = n / took.Seconds()
	o.held /= n
	o.cpu /= float64(between)
	o.allocs /= float64(between)
	o.bytes /= float64(between)
	o.switches /= float64(between)
	if c.java { // which does not tell
		o.allocs = math.NaN()
	}
	o.server = used / n
	o.p50, o.p99, o.max, o.mean = quantile(waits, 0.5), quantile(waits, 0.99), quantile(waits, 1), mean(waits)
	o.jain = jain(each)
	o.goroutines, o.conns = float64(goroutines), conns
	if counted != nil {
		inWindow, sent := counted.stop(t)
		o.commands, o.sent = float64(inWindow)/n, float64(sent)/float64(all)
	}
	return o, nil
}

// hosts are the servers, and the processes that are kept from run to run.
type hosts struct {
	redis *redisStore
	etcd  *etcdStore // nil if it is not there
	java  *javas     // nil if it is not there
}

func (h *hosts) store(c contender) store {
	if c.etcd {
		return h.etcd
	}
	return h.redis
}

// has tells whether what c needs is there.
func (h *hosts) has(c contender) bool {
	return !(c.etcd && h.etcd == nil || c.java && h.java == nil)
}

// crew are n processes for c; release must be called when they are done with.
func (h *hosts) crew(c contender, n int) (crew []*member, release func(), err error) {
	if c.java {
		return h.java.crew(n)
	}
	var all []*member
	release = func() {
		for _, m := range all {
			m.dismiss()
		}
	}
	for range n {
		m, err := enlist(c.binary)
		if err != nil {
			return nil, release, err
		}
		all = append(all, m)
	}
	return all, release, nil
}
