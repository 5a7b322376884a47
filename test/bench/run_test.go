//go:build linux

package bench

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest/stats"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// outcome is one run of a workload by one contender.
type outcome struct {
	rate float64 // ops, or handoffs, per second
	waits
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

// waits are µs from a call to its lock.
type waits struct{ p50, p99, max, mean float64 }

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
// the window begins: with a queue that is not fair a waiter may wait for ever. A window is ten turns of
// each, so a fifth of it is two.
func settle(window time.Duration) time.Duration { return 500*time.Millisecond + window/5 }

// bound is more than any run takes.
const bound = 2 * time.Minute

var runs atomic.Int64

// failed is the first error of a crew.
func failed(crew []*member) error {
	for _, m := range crew {
		if m.err != nil {
			return m.err
		}
	}
	return nil
}

// run is one run, on a server that is emptied before.
func (w workload) run(t testing.TB, h *hosts, c contender, window time.Duration, what watch) (*outcome, error) {
	t.Helper()
	s := h.store(c)
	s.empty(t)
	run := runs.Add(1)
	path := filepath.Join(t.TempDir(), "witness")
	witness := harness.Must(openWitness(path))(t)
	defer witness.close()
	crew, release, err := h.crew(c, w)
	defer release()
	if err != nil {
		return nil, err
	}
	for p, m := range crew {
		k := task{
			Contender: c.name, Addr: s.addr(w), Witness: path, Process: p, Run: run, Goroutines: w.goroutines,
			Shared: w.shared, Try: w.try, Hold: w.hold, Fair: c.fair, Profile: what == profiling,
		}
		if w.encrypted {
			k.TLS = h.redis.tls.Dir()
		}
		m.give(k, bound)
	}
	tell := func(line string) {
		for _, m := range crew {
			m.tell(line)
		}
	}
	for _, m := range crew {
		m.ready()
	}
	var counted meter
	if what == sending {
		counted = s.meter(t)
	}
	tell("begin")
	if err := failed(crew); err != nil {
		return nil, err
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
	tell("measure")
	for time.Since(began) < window || witness.ops.Load() == 0 &&
		time.Since(began) < 15*time.Second { // a machine may stand still
		time.Sleep(max(time.Until(began.Add(window)), time.Millisecond))
	}
	conns := s.connections(t)
	witness.phase.Store(over)
	took := time.Since(began)
	if counted != nil {
		counted.mark(t)
	}
	used := s.cpu(t) - before
	tell("end")

	o := &outcome{}
	var waits []float64
	var each []int
	ops, all, between, goroutines := 0, 0, 0, 0
	for _, m := range crew {
		var r report
		if m.report(&r); m.err != nil {
			return nil, m.err
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
		return nil, fmt.Errorf("%d times another was inside already", n)
	}
	if ops == 0 {
		return nil, errors.New("nothing was granted")
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
	o.p50, o.p99 = stats.Quantile(waits, 0.5), stats.Quantile(waits, 0.99)
	o.max, o.mean = stats.Quantile(waits, 1), stats.Mean(waits)
	o.jain = stats.Jain(each)
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
func (h *hosts) has(c contender) bool { return !(c.etcd && h.etcd == nil || c.java && h.java == nil) }

// crew are the processes for c in a workload; release must be called when they are done with.
func (h *hosts) crew(c contender, w workload) (crew []*member, release func(), err error) {
	if c.java {
		return h.java.crew(w.processes)
	}
	var all []*member
	n, back := w.processes, func() {}
	if w.mixed {
		n /= 2
		if crew, back, err = h.java.crew(w.processes - n); err != nil {
			return nil, back, err
		}
	}
	release = func() {
		back()
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
	return append(crew, all...), release, nil
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// witness is memory that all processes of a run share: which worker is inside, and how far the run is.
// Worker.java knows where its words are.
type witness struct {
	*words
	close func()
	tied  bool // a lock that is held ends with the context that it was taken with
}

type words struct {
	inside     word // 0, or the worker that is
	violations word
	served     word // goroutines that had their turn
	ops        word // in the window
	phase      word
}

// word has a cache line of its own.
type word struct {
	atomic.Int64
	_ [7]int64
}

// The phases of a run.
const (
	settling  = iota // what comes now is not measured
	measuring        // the window
	over
)

// openWitness maps the file at path, which it makes if it is not there.
func openWitness(path string) (*witness, error) {
	w, unmap, err := harness.Map[words](path)
	return &witness{words: w, close: unmap}, err
}

func (w *witness) enter(who int64) { w.swap(0, who) }

func (w *witness) leave(who int64) { w.swap(who, 0) }

// swap counts a violation where another was inside, or had been; unless the run is over
// then, and locks may end with the context that they were taken with (rueidislock's do).
func (w *witness) swap(from, to int64) {
	if !w.inside.CompareAndSwap(from, to) && !(w.tied && w.phase.Load() == over) {
		w.violations.Add(1)
	}
}

// workload is what every contender does.
type workload struct {
	name       string
	what       string
	processes  int
	goroutines int
	shared     bool // all want one lock, instead of one each
	try        bool
	hold       time.Duration
	slow       bool // the server is a slow link away
	encrypted  bool // by TLS
	mixed      bool // half of the processes are Redisson's
	rows       bool // ours with contexts that cannot end, and the floors with the options of ours, take part
	fair       bool // the fair locks take part
	once       bool // no bar rests on its times: one round is enough
	smoke      bool // one of those that the smoke test runs
}

// delay is the slow link's, each way.
const delay = 10 * time.Millisecond

func workloads() []workload {
	alone := func(n int, what string) workload {
		return workload{name: fmt.Sprintf("uncontended %d", n), what: what, processes: 1, goroutines: n, rows: n < 256,
			smoke: n == 32}
	}
	list := []workload{
		alone(1, "1 goroutine, Lock and Unlock"),
		alone(32, "32 goroutines, a name each"),
		alone(256, "256 goroutines, a name each"),
		{name: "refused", what: "1 goroutine, TryLock of a lock that is held", processes: 1, goroutines: 1, try: true,
			smoke: true},
		{name: "contended 1x64", what: "one process, 64 goroutines, one name, held 0", processes: 1, goroutines: 64,
			shared: true, smoke: true},
	}
	crowd := func(processes, goroutines int, hold time.Duration) workload {
		w := workload{
			name: fmt.Sprintf("contended %dx%d", processes,
				goroutines), processes: processes, goroutines: goroutines, shared: true, hold: hold,
			what: fmt.Sprintf("%d processes, %d goroutines each, one name, held %v", processes, goroutines, hold),
			once: processes != 8 || goroutines != 16 || hold == 0,
		}
		if hold == 0 {
			w.name += " held 0"
		}
		w.fair = processes == 8 && hold > 0
		w.smoke = processes == 2 && hold > 0
		return w
	}
	list = append(list, crowd(8, 16, time.Millisecond))
	for _, n := range []int{1, 4, 32} {
		list = append(list, crowd(8, n, time.Millisecond))
	}
	for _, n := range []int{2, 4, 16} {
		list = append(list, crowd(n, 16, time.Millisecond))
	}
	for _, n := range []int{2, 4, 8, 16} {
		list = append(list, crowd(n, 16, 0))
	}
	return append(list,
		workload{name: "slow uncontended 1", what: "1 goroutine, Lock and Unlock, the server 10 ms away each way",
			processes: 1, goroutines: 1, slow: true, once: true},
		workload{name: "slow contended 4x4",
			what:      "4 processes, 4 goroutines each, one name, held 0, the server 10 ms away each way",
			processes: 4, goroutines: 4, shared: true, slow: true, once: true, smoke: true},
	)
}

// plays tells whether c takes part.
func (w workload) plays(c contender) bool {
	switch {
	case c.endless || c.tracked:
		return w.rows
	case w.shared:
		return c.role != floor && (w.fair || !c.fair) // floors do not wait
	default:
		return !c.fair
	}
}

// profiled tells whether it is seen where the time goes.
func (w workload) profiled() bool { return !w.shared && !w.try && !w.slow }

// waiters is how many goroutines want the one lock.
func (w workload) waiters() int { return w.processes * w.goroutines }

// window is how long w is measured: long enough for each waiter to have ten turns, if the queue
// were perfect. Jain's index of less says which came when, not which is served how often.
func (w workload) window(least time.Duration) time.Duration {
	if !w.shared && w.slow {
		return max(least, 3*time.Second) // one more or less of a dozen is no difference
	}
	if !w.shared {
		return least
	}
	turn := w.hold + 200*time.Microsecond // a sleep is longer than what was asked for, and the wire's part
	if w.slow {
		turn += 2 * delay
	}
	return max(least, time.Duration(10*w.waiters())*turn)
}
