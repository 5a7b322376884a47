//go:build linux

package bench

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/test/internal/harness"
)

// Every contender that needs nothing but Redis gets through workloads of each sort, and none
// is let in beside another. No figure is judged but those that do not depend on the machine.
func TestEveryContenderGetsThroughWorkloadsOfEachSort(t *testing.T) {
	h := &hosts{redis: startRedis(t)}
	for _, w := range workloads() {
		if !w.smoke {
			continue
		}
		for _, c := range contenders() {
			if !w.plays(c) || !h.has(c) {
				continue
			}
			o, err := w.run(t, h, c, 50*time.Millisecond, sending)
			if c.role == peer { // how a peer fares is not ours to check
				continue
			}
			if err != nil {
				t.Errorf("%s, %s: %v", w.name, c.name, err)
				continue
			}
			harness.ErrorIf(t, o.rate <= 0 || o.mean <= 0 || o.jain <= 0, "%s, %s: %+v", w.name, c.name, o)
			least := 2.0
			if c.role == mine {
				least /= float64(w.goroutines) // calls at the same time share a command
			}
			harness.ErrorIf(t, !w.shared && !w.try && o.sent < least,
				"%s, %s: %.2f commands for Lock and Unlock, want %.2f at least", w.name, c.name, o.sent, least)
		}
	}
}

func TestTheSlowLinkHoldsBothWaysBack(t *testing.T) {
	conn := harness.Must(net.Dial("tcp", startRedis(t).addr(workload{slow: true})))(t)
	defer conn.Close()
	start := time.Now()
	harness.Must(conn.Write([]byte("PING\r\n")))(t)
	reply := make([]byte, len("+PONG\r\n"))
	harness.Must(io.ReadFull(conn, reply))(t)
	took := time.Since(start)
	harness.ErrorIf(t, string(reply) != "+PONG\r\n" || took < 2*delay, "%q after %v, want %v at least",
		reply, took, 2*delay)
}

func TestLeasesAreHeldAndRenewedInBatches(t *testing.T) {
	const count, watchdog = 2000, 15 * time.Second // each is renewed twice
	for _, h := range hold(t, holders(), count, watchdog, watchdog*2/3, "") {
		harness.ErrorIf(t, h.lost != 0 || h.missing != 0 || h.bytes <= 0 || h.goroutines < 1 || h.goroutines > h.all,
			"%+v", h)
		harness.ErrorIf(t, h.commands == 0, "%s: nothing was renewed in two thirds of the watchdog timeout", h.contender)
	}
}

func TestTheWindowIsTenTurnsOfEachWaiter(t *testing.T) {
	for _, w := range workloads() {
		turns := float64(w.window(time.Millisecond)) / float64(time.Duration(w.waiters())*(w.hold+time.Nanosecond))
		if w.shared && w.hold > 0 && turns < 10 {
			t.Errorf("%s: %v is %.1f turns", w.name, w.window(time.Millisecond), turns)
		}
	}
}

// What make bench writes is what stands between the marks of docs/reference/performance.md.
func TestThePageHasAPlaceForWhatIsMeasured(t *testing.T) {
	page := harness.Must(os.ReadFile("../../docs/reference/performance.md"))(t)
	spliced := harness.Must(splice(page, []byte("measured\n")))(t)
	want := beginMark + "measured\n" + endMark
	harness.ErrorIf(t, strings.Count(string(spliced), want) != 1, "%q is not in\n%s", want, spliced)
	again, err := splice(spliced, []byte("measured\n"))
	harness.ErrorIf(t, err != nil || string(again) != string(spliced), "a second time: %v\n%s", err, again)
}

// All of the page is written, and the plots are drawn, from figures that are all there.
func TestThePageTellsEveryWorkloadAndContender(t *testing.T) {
	r := &results{of: make(map[string]*result), setting: "on nothing."}
	for i, w := range workloads() {
		one := &result{workload: w, median: make(map[string]outcome), spent: make(map[string]spent)}
		for k, c := range contenders() {
			if w.plays(c) {
				one.names = append(one.names, c.name)
				one.median[c.name] = outcome{rate: float64(1000*i + k + 1), commands: 2, waits: waits{p50: 1, p99: 2, mean: 1}}
				one.spent[c.name] = spent{cpu: float64(2_000_000 + 1000*i + k)}
			}
		}
		r.of[w.name] = one
	}
	r.held = []holding{{contender: oursGoRedis, leases: 7, want: 1}}
	dir := t.TempDir()
	harness.OK(t, os.WriteFile(dir+"/performance.md", []byte("# head\n"+beginMark+"old\n"+endMark+"foot\n"), 0o600))
	harness.OK(t, r.write(dir))
	page := harness.Must(os.ReadFile(dir + "/performance.md"))(t)
	s := string(page)
	harness.ErrorIf(t, !strings.HasPrefix(s, "# head\n") || !strings.HasSuffix(s, "foot\n") ||
		strings.Contains(s, "old\n"),
		"what is not generated has changed, or what is has not:\n%s", s)
	for i, w := range workloads() {
		for k, c := range contenders() {
			if want := fmt.Sprint(1000*i + k + 1); w.plays(c) && !w.slow && !strings.Contains(string(page), " "+want+" ") {
				t.Errorf("%s of %s, %s, is not on the page", want, c.name, w.name)
			}
			if want := micros(float64(2_000_000 + 1000*i + k)); w.plays(c) && w.profiled() &&
				!strings.Contains(string(page), "| "+c.title()+" | "+want+" |") {
				t.Errorf("where the time of %s, %s, goes, %s, is not on the page", c.name, w.name, want)
			}
		}
	}
	for _, p := range plots {
		svg := harness.Must(os.ReadFile(dir + "/" + p.file))(t)
		for _, c := range contenders() {
			drawn := strings.Contains(string(svg), ">"+c.name+"<")
			harness.ErrorIf(t, drawn != (workload{shared: true, fair: true}).plays(c),
				"%s: %s is drawn: %v", p.file, c.name, drawn)
		}
		harness.ErrorIf(t, !strings.Contains(string(page), "("+p.file+")"), "the page does not show %s", p.file)
	}
}

func TestTheWitnessSeesTwoInside(t *testing.T) {
	w := harness.Must(openWitness(t.TempDir() + "/witness"))(t)
	w.enter(1)
	w.enter(2)
	w.leave(1)
	n := w.violations.Load()
	harness.ErrorIf(t, n != 1, "%d violations, want 1", n)
	w.leave(1)
	harness.ErrorIf(t, w.violations.Load() != 2, "%d violations after a second leave, want 2", w.violations.Load())
	w.phase.Store(over)
	if w.leave(1); w.violations.Load() != 3 {
		t.Errorf("%d violations when the run was over, want 3", w.violations.Load())
	}
	w.tied = true
	if w.leave(1); w.violations.Load() != 3 {
		t.Errorf("%d violations when the run was over and the locks with it, want 3", w.violations.Load())
	}
}

func TestTheMedian(t *testing.T) {
	odd, even := median([]float64{5, 1, 4, 2, 3}), median([]float64{4, 1})
	harness.ErrorIf(t, odd != 3 || even != 2.5, "median of five %v, of two %v", odd, even)
}

func TestMediansAreOfEachFigureByItself(t *testing.T) {
	m := medians([]outcome{{rate: 1, conns: 30, commands: 5}, {rate: 3, conns: 10}, {rate: 2, conns: 20}})
	want := (outcome{rate: 2, conns: 20})
	harness.ErrorIf(t, m != want, "%+v, want %+v", m, want)
}

func TestTimeIsSortedByItsSpender(t *testing.T) {
	for _, c := range []struct {
		want  int
		stack []string // the innermost first
	}{
		{partKernel, []string{"internal/runtime/syscall/linux.Syscall6", "syscall.Syscall", "net.(*conn).Write",
			"github.com/redis/rueidis.(*pipe)._backgroundWrite"}},
		{partKernel, []string{"runtime.futex", "runtime.futexwakeup", "runtime.ready",
			"github.com/mortise-go/mortise.(*Client).Lock"}},
		{partScheduler, []string{"runtime.lock2", "runtime.selectgo",
			"github.com/mortise-go/mortise/backend/redisproto/batcher.(*Batcher[...]).Do"}},
		{partScheduler, []string{"runtime.runqget", "runtime.findRunnable", "runtime.schedule", "runtime.park_m",
			"runtime.mcall"}},
		{partMemory, []string{"runtime.nextFreeFast", "runtime.mallocgcSmallScanNoHeader", "runtime.mallocgc",
			"github.com/mortise-go/mortise.newRequest"}},
		{partMemory, []string{"runtime.scanObject", "runtime.gcDrain", "runtime.gcBgMarkWorker"}},
		{partOwn, []string{"runtime.mapaccess1", "github.com/mortise-go/mortise.(*Client).queueOf",
			"github.com/redis/never.called"}},
		{partOwn, []string{"internal/sync.(*Mutex).Lock", "sync.(*Mutex).Lock",
			"github.com/mortise-go/mortise.(*Client).settle"}},
		{partLibrary, []string{"bufio.(*Reader).ReadSlice",
			"github.com/redis/go-redis/v9/internal/proto.(*Reader).ReadLine"}},
		{partRest, []string{"time.Now", "github.com/mortise-go/mortise/test/bench.(*task).once"}},
		{partRest, []string{"main.main"}},
	} {
		if got := partOf(c.stack); got != c.want {
			t.Errorf("%q is %s, want %s", c.stack, partNames[got], partNames[c.want])
		}
	}
}

// A run with the profiler on tells where the time goes: something of it is ours, and the parts are all.
func TestAProfileTellsWhereTheTimeGoes(t *testing.T) {
	h := &hosts{redis: startRedis(t)}
	c := harness.Must(find(oursGoRedis))(t)
	for _, w := range workloads() {
		if !w.smoke || !w.profiled() {
			continue
		}
		seen := false
		for window := time.Second; !seen && window <= 16*time.Second; window *= 2 { // a busy machine leaves few samples
			o := harness.Must(w.run(t, h, c, window, profiling))(t)
			all := 0.0
			for _, v := range o.parts {
				all += v
			}
			seen = o.parts[partOwn] > 0 && o.parts[partKernel] > 0
			harness.ErrorIf(t, all < 0.999 || all > 1.001 || o.switches <= 0 || o.cpu <= 0, "%s: %+v", w.name, o)
		}
		harness.ErrorIf(t, !seen, "%s: nothing of it is ours, or the kernel's", w.name)
	}
}
