//go:build linux

package bench

import (
	"fmt"
	"time"
)

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
	rows       bool // ours with contexts that cannot end, and the floors with the options of ours, take part
	fair       bool // the fair locks take part
	once       bool // no bar rests on its times: one round is enough
	smoke      bool // one of those that the smoke test runs
}

// delay is the slow link's, each way.
const delay = 10 * time.Millisecond

func workloads() []workload {
	alone := func(n int, what string) workload {
		return workload{name: fmt.Sprintf("uncontended %d", n), what: what, processes: 1, goroutines: n, rows: n < 256, smoke: n == 32}
	}
	list := []workload{
		alone(1, "1 goroutine, Lock and Unlock"),
		alone(32, "32 goroutines, a name each"),
		alone(256, "256 goroutines, a name each"),
		{name: "refused", what: "1 goroutine, TryLock of a lock that is held", processes: 1, goroutines: 1, try: true, smoke: true},
		{name: "contended 1x64", what: "one process, 64 goroutines, one name, held 0", processes: 1, goroutines: 64, shared: true, smoke: true},
	}
	crowd := func(processes, goroutines int, hold time.Duration) workload {
		w := workload{
			name: fmt.Sprintf("contended %dx%d", processes, goroutines), processes: processes, goroutines: goroutines, shared: true, hold: hold,
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
		workload{name: "slow uncontended 1", what: "1 goroutine, Lock and Unlock, the server 10 ms away each way", processes: 1, goroutines: 1, slow: true, once: true},
		workload{name: "slow contended 4x4", what: "4 processes, 4 goroutines each, one name, held 0, the server 10 ms away each way", processes: 4, goroutines: 4, shared: true, slow: true, once: true, smoke: true},
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

// waiters are those who want the one lock.
func (w workload) waiters() int { return w.processes * w.goroutines }

// window is how long w is measured: long enough for each waiter to have ten turns, if the queue
// were perfect. Jain's index of less says who came when, not who is served how often.
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
