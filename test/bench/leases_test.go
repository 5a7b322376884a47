//go:build linux

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto"
	"github.com/mortise-go/mortise/redisgo"
	ours "github.com/mortise-go/mortise/rueidis"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// leasesTask is what a process does that holds many leases: it takes them, says so, and holds
// them until it is told that it is over.
type leasesTask struct {
	Count    int
	Watchdog time.Duration
	Profile  string // where to write a profile of the heap while all are held; "" for none
}

// held is what it says when it has them.
type held struct {
	Bytes float64 // of memory for each
}

// kept is what it says at the end.
type kept struct {
	Lost       int
	Goroutines int // the most that mortise had started at any time, seen every 100 ms
	All        int // as many in the whole process, the client library's included
}

// allAtOnce is how many leases mortise renews by a command, where connections do not track what they
// read; one third of the watchdog timeout is how often. docs and README promise both.
const allAtOnce = 256

func batch(contender string) float64 {
	if contender == oursRueidis {
		return redisproto.TrackedBatch
	}
	return allAtOnce
}

// backends are those that hold leases, by contender.
func (k *leasesTask) backend(contender, addr string) (backend.Backend, error) {
	switch contender {
	case "mortise, go-redis":
		return redisgo.New(goRedis(addr)), nil
	case "mortise, rueidis":
		return ours.New(rueidis.ClientOption{InitAddress: []string{addr}}), nil
	}
	return nil, fmt.Errorf("%s does not renew leases", contender)
}

func (k *leasesTask) work(c contender, addr string, next func()) {
	if k.Profile != "" {
		runtime.MemProfileRate = 512
	}
	var lost atomic.Int64
	client := harness.Must(mortise.New(harness.Must(k.backend(c.name, addr))(here),
		mortise.WithWatchdogTimeout(k.Watchdog), mortise.WithObserver(mortise.Observer{
			Lost: func(mortise.Event) { lost.Add(1) },
		})))(here)
	out := json.NewEncoder(os.Stdout)
	names := make([]string, k.Count) // the caller's memory, as leases is
	for i := range names {
		names[i] = fmt.Sprintf("lease:%d", i)
	}
	leases := make([]*mortise.Lease, k.Count)
	harness.OK(here, take(client, []string{"warm"}, leases[:1])) // connections, and the schedule's goroutine
	harness.OK(here, leases[0].Unlock(context.Background()))
	fmt.Println("ready")
	next() // begin

	before := heap()
	harness.OK(here, take(client, names, leases))
	h := held{float64(heap()-before) / float64(k.Count)}
	if k.Profile != "" {
		harness.OK(here, writeHeap(k.Profile))
	}
	harness.OK(here, out.Encode(h))

	var e kept
	over := make(chan struct{})
	go func() { next(); close(over) }() // end
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for done := false; !done; {
		e.All = max(e.All, runtime.NumGoroutine())
		e.Goroutines = max(e.Goroutines, ownGoroutines())
		select {
		case <-over:
			done = true
		case <-look.C:
		}
	}
	for _, l := range leases {
		if l.Err() != nil {
			e.Lost++
		}
	}
	e.Lost = max(e.Lost, int(lost.Load()))
	harness.OK(here, out.Encode(e)) // and the process ends: a hundred thousand releases prove nothing here
}

// take takes all names, each under a context of its own kind: one that never ends.
func take(client *mortise.Client, names []string, leases []*mortise.Lease) error {
	return harness.Workers(len(names), 128, func(i int) (err error) {
		leases[i], err = client.TryLock(context.Background(), names[i])
		return err
	})
}

// heap is what is in use after everything was collected that can be.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // pools give up what they hold at the second
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func writeHeap(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return pprof.Lookup("heap").WriteTo(f, 0)
}

// ownGoroutines counts those that mortise started, its adapters included, client libraries
// not.
func ownGoroutines() (n int) {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		_, by, _ := strings.Cut(stack, "created by ")
		if strings.HasPrefix(by, "github.com/mortise-go/mortise") &&
			!strings.HasPrefix(by, "github.com/mortise-go/mortise/test/") {
			n++
		}
	}
	return n
}

// holding is what holding many leases came to.
type holding struct {
	contender string
	leases    int
	took      time.Duration // until all were held
	goroutines,
	all int
	bytes    float64 // for each
	lost     int
	missing  int     // from the server, at the end
	commands float64 // renewals, per second
	each     float64 // µs of the server for a renewal of a batch
	want     float64 // leases / period / batch
}

// holders are the contenders that hold leases.
func holders() (list []contender) {
	for _, c := range contenders() {
		if c.name == oursGoRedis || c.name == oursRueidis {
			list = append(list, c)
		}
	}
	return list
}

// hold has each of contenders hold count leases for d, all at the same time, each on a server of
// its own: what is measured is counts.
func hold(t testing.TB, contenders []contender, count int, watchdog, d time.Duration, profile string) []holding {
	t.Helper()
	all := make([]holding, len(contenders))
	errs := make([]error, len(contenders))
	stores := make([]*redisStore, len(contenders))
	for i := range contenders {
		stores[i] = startRedis(t)
	}
	var wg sync.WaitGroup
	for i, c := range contenders {
		wg.Go(func() {
			k := &leasesTask{Count: count, Watchdog: watchdog}
			if profile != "" {
				k.Profile = profile + "-" + strings.NewReplacer(" ", "", ",", "-").Replace(c.name)
			}
			all[i], errs[i] = k.hold(t, stores[i], c, d)
		})
	}
	wg.Wait()
	for i, err := range errs {
		harness.Checkf(t, err, "%s, %d leases", contenders[i].name, count)
	}
	return all
}

func (k *leasesTask) hold(t testing.TB, s *redisStore, c contender, d time.Duration) (holding, error) {
	out := holding{contender: c.name, leases: k.Count, want: float64(k.Count) / (k.Watchdog / 3).Seconds() / batch(c.name)}
	m, err := enlist(c.binary)
	if err != nil {
		return out, err
	}
	defer m.dismiss()
	m.give(task{Contender: c.name, Addr: s.Addr(), Leases: k}, bound+d)
	m.ready()
	began := time.Now()
	m.tell("begin")
	var h held
	if m.decode(&h); m.err != nil {
		return out, m.err
	}
	out.took, out.bytes = time.Since(began), h.Bytes
	calls, took := s.scripts(t)
	began = time.Now()
	time.Sleep(d) // what is measured is what goes on meanwhile
	seconds := time.Since(began).Seconds()
	n, sum := s.scripts(t)
	out.commands, out.each = float64(n-calls)/seconds, float64((sum-took).Microseconds())/float64(n-calls)
	out.missing = k.Count - len(s.Must("KEYS", "lease:*").([]any))
	m.tell("end")
	var e kept
	m.report(&e)
	out.lost, out.goroutines, out.all = e.Lost, e.Goroutines, e.All
	return out, m.err
}

func printHoldings(out io.Writer, all []holding, d time.Duration) {
	fmt.Fprintf(out, "\nleases: held for %v by one client\n", d)
	w := columns(out)
	fmt.Fprintln(w, "\tleases\ttaken in\town goroutines\tall goroutines\tbytes each\tlost\t"+
		"gone from the server\tcommands/s\texpected\tserver CPU each\t")
	for _, h := range all {
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%d\t%.0f\t%d\t%d\t%.1f\t%.1f\t%s\t\n", h.contender, h.leases,
			h.took.Round(time.Millisecond),
			h.goroutines, h.all, h.bytes, h.lost, h.missing, h.commands, h.want, micros(h.each))
	}
	w.Flush()
}
