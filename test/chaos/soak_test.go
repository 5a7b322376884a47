//go:build linux

package chaos

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/semaphore"
	"github.com/mortise-go/mortise/test/internal/harness"
)

var (
	soakTime  = flag.Duration("soak", 20*time.Second, "how long TestSoak lasts; `make soak` takes an hour")
	soakThink = flag.Duration("soak.think", 20*time.Millisecond,
		"how long each of its goroutines rests between two operations, on average")
	soakTo = flag.String("soak.csv", "", "a file for all samples")
)

// Load with faults, for as long as is wanted, and nothing grows: neither memory, goroutines, connections and
// subscriptions, nor keys and memory at the server. Names are new all the time; those of fenced locks, of
// counts, and of fair and read-write locks come again, since the first leave tokens and counts, and the last are
// remembered by a server that tracks what rueidis read (see docs/explanation/guarantees.md).
func TestSoak(t *testing.T) {
	goredis.SetLogger(harness.Silent{})
	s := newSoak(t)
	const each = 8
	var wg sync.WaitGroup
	for i, c := range s.clients {
		for j := range each {
			wg.Go(func() { s.work(c, rand.New(rand.NewPCG(uint64(i), uint64(j)))) })
		}
	}
	wg.Go(s.suffer)
	every := max(*soakTime/240, 250*time.Millisecond)
	for end := time.Now().Add(*soakTime); time.Now().Before(end); {
		time.Sleep(every)
		s.sample()
	}
	close(s.stop)
	wg.Wait()
	s.t.Log("\n" + s.table())
	if *soakTo != "" {
		s.write(*soakTo)
	}
	for _, what := range uneven(s.samples) {
		t.Error(what)
	}
	if n := s.strange.Load(); n != nil {
		t.Errorf("an error of no kind: %v", *n)
	}
	s.end()
}

// A series that rises is found, whatever else there is; one that only varies is not.
func TestSoakTellsARise(t *testing.T) {
	flat := func() (all []sample) {
		for i := range 90 {
			x := sample{at: time.Duration(i) * 10 * time.Second, operations: 1000 * (i + 1)}
			for j := range x.values {
				x.values[j] = 50_000_000 + i%7*1_000_000
			}
			all = append(all, x)
		}
		return all
	}
	found := uneven(flat())
	harness.ErrorIf(t, len(found) > 0, "found where there is nothing: %q", found)
	for j, m := range measures {
		all := flat()
		for i := range all {
			all[i].values[j] += i * (50_000_000/100 + m.slack/10)
		}
		if found := uneven(all); len(found) != 1 || !strings.HasPrefix(found[0], m.name) {
			t.Errorf("%s rises: found %q", m.name, found)
		}
	}
	stuck := flat()
	for i := range stuck[60:] {
		stuck[60+i].operations = stuck[60].operations
	}
	if found := uneven(stuck); len(found) != 1 {
		t.Errorf("no process goes on: found %q", found)
	}
}

// measures are what is sampled. The median of the last third of a run is at most that of the second,
// a tenth and the slack more.
var measures = [...]struct {
	name, unit string
	slack      int
}{
	{"heap", "MiB", 4 << 20},
	{"resident", "MiB", 16 << 20},
	{"goroutines", "", 60},
	{"connections", "", 16},
	{"channels", "", 12},
	{"keys", "", 60},
	{"markers", "", 60}, // see uneven
	{"server", "MiB", 2 << 20},
	{"tracked", "", 2000},
}

type sample struct {
	at                 time.Duration
	operations, faults int
	values             [len(measures)]int
}

// uneven tells what is not flat.
func uneven(all []sample) (found []string) {
	third := len(all) / 3
	if third == 0 {
		return []string{fmt.Sprintf("%d samples are too few", len(all))}
	}
	for j, m := range measures {
		if m.name == "markers" && all[len(all)-1].at < 10*time.Minute {
			continue // each lives for two minutes: it takes as long until there are as many as there will be
		}
		second, last := median(all[third:2*third], j), median(all[2*third:], j)
		if last > second+second/10+m.slack {
			found = append(found, fmt.Sprintf("%s rises: %d in the second third of the run, %d in the last",
				m.name, second, last))
		}
	}
	done := func(x []sample) int { return x[len(x)-1].operations - x[0].operations }
	if a, b := done(all[third:2*third]), done(all[2*third:]); b <= a/4 {
		found = append(found, fmt.Sprintf("locking comes to a stop: %d operations in the second third of the run, "+
			"%d in the last", a, b))
	}
	return found
}

func median(of []sample, j int) int {
	v := make([]int, len(of))
	for i, x := range of {
		v[i] = x.values[j]
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// soak is a run.
type soak struct {
	t       *testing.T
	server  *redistest.Server
	wires   [2]*wire
	clients []*soaked
	admin   *goredis.Client
	stop    chan struct{}
	began   time.Time
	up      sync.RWMutex // held while the server is restarted

	operations, faults, names atomic.Int64
	strange                   atomic.Pointer[error]
	samples                   []sample
}

// soaked is a client under load.
type soaked struct {
	*mortise.Client
	fair, fenced, read, write mortise.Locker
	below                     func()
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	s := &soak{t: t, server: redistest.Start(t, redistest.WithAOF()), stop: make(chan struct{}), began: time.Now()}
	s.admin = goredis.NewClient(&goredis.Options{Addr: s.server.Addr(), PoolSize: 1})
	t.Cleanup(func() { s.admin.Close() })
	for i := range s.wires {
		s.wires[i] = newWire(t, s.server.Addr())
	}
	for i, client := range slices.Repeat(harness.Libraries, 2) {
		addr := s.server.Addr()
		at := harness.Site{Addrs: []string{addr}, Timeout: commandTimeout,
			Wires: map[string]string{addr: s.wires[i/2].Addr()}}
		b, below, err := at.Open(client)
		harness.OK(t, err)
		m := harness.Must(mortise.New(b, mortise.WithWatchdogTimeout(3*time.Second)))(t)
		x := &soaked{Client: m, below: below}
		x.fair, x.fenced = m.With(mortise.Fair()), m.With(mortise.Fenced())
		x.read, x.write = m.RW().Read, m.RW().Write
		s.clients = append(s.clients, x)
	}
	return s
}

// over tells whether the run is, after a rest.
func (s *soak) over(rest time.Duration) bool {
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false
	case <-s.stop:
		return true
	}
}

// expected are the errors that faults may cause.
var expected = []error{
	mortise.ErrNotAcquired, semaphore.ErrNotHeld, mortise.ErrLost, mortise.ErrUnavailable, context.DeadlineExceeded,
}

func (s *soak) work(c *soaked, r *rand.Rand) {
	for !s.over(time.Duration(r.Int64N(int64(2**soakThink) + 1))) {
		err := s.one(c, r)
		s.operations.Add(1)
		if err != nil && !slices.ContainsFunc(expected, func(is error) bool { return errors.Is(err, is) }) {
			s.strange.Store(&err)
		}
	}
}

// unlocked unlocks what a Lock returned.
func unlocked(l *mortise.Lease, err error) error {
	if err != nil {
		return err
	}
	return l.Unlock(context.Background())
}

// one is an operation.
func (s *soak) one(c *soaked, r *rand.Rand) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	again := func(of string, n int) string { return fmt.Sprint(of, ":", r.IntN(n)) }
	fresh := fmt.Sprint("new:", s.names.Add(1))
	var stay time.Duration
	wait := mortise.WithWait(300 * time.Millisecond)
	through := func(l mortise.Locker, name string, opts ...mortise.Option) error {
		lease, err := l.Lock(ctx, name, opts...)
		if err != nil {
			return err
		}
		s.over(stay)
		return lease.Unlock(context.Background())
	}
	switch dice := r.IntN(100); {
	case dice < 25: // wanted by all
		stay = time.Millisecond
		return through(c, again("hot", 3), wait)
	case dice < 30:
		stay = time.Millisecond
		return through(c.fair, again("fair", 20), wait)
	case dice < 35:
		return through(c.read, again("sides", 20), wait)
	case dice < 40:
		return through(c.write, again("sides", 20), wait)
	case dice < 45:
		return through(c.fenced, again("fenced", 20), wait)
	case dice < 50: // given up before the answer is there
		early, cancel := context.WithTimeout(ctx, time.Duration(r.Int64N(int64(time.Millisecond))))
		defer cancel()
		return unlocked(c.Lock(early, fresh))
	case dice < 52: // held for so long that it is renewed
		stay = 2 * time.Second
		return through(c, fresh)
	case dice < 54: // left to its time
		_, err := c.TryLock(ctx, fresh, mortise.WithLease(100*time.Millisecond))
		return err
	case dice < 58:
		parts := mortise.Parts{}.And(c, fresh, fresh+"b", again("hot", 3))
		return unlocked(parts.Lock(ctx, wait))
	case dice < 62:
		return mortise.Do(ctx, c, fresh, func(ctx context.Context) error {
			return mortise.Do(ctx, c, fresh, func(context.Context) error { return nil })
		})
	case dice < 63:
		x := semaphore.NewCounting(c.Client, again("counting semaphore", 5))
		if _, err := x.TrySetPermits(ctx, 1000); err != nil {
			return err
		}
		return errors.Join(x.Acquire(ctx, 1, wait), x.Release(ctx, 1))
	case dice < 64:
		x := semaphore.New(c.Client, again("semaphore", 5), 0)
		if _, err := x.TrySetPermits(ctx, 1000); err != nil {
			return err
		}
		p, err := x.Acquire(ctx, 1, wait)
		if err != nil {
			return err
		}
		return p.Release(context.Background())
	case dice < 65:
		x := latch.New(c.Client, again("latch", 5))
		_, err := x.TrySet(ctx, 2)
		return errors.Join(err, x.CountDown(ctx))
	case dice < 67:
		_, err := c.Inspect(ctx, again("hot", 3))
		return err
	}
	return through(c, fresh)
}

// suffer does faults until the end.
func (s *soak) suffer() {
	r := rand.New(rand.NewPCG(1, 2))
	rest := min(max(*soakTime/400, 250*time.Millisecond), 4*time.Second)
	for !s.over(rest/2 + time.Duration(r.Int64N(int64(rest)))) {
		w := s.wires[r.IntN(len(s.wires))]
		dice := r.IntN(20)
		switch {
		case dice < 5:
			w.Cut()
		case dice < 11:
			x := &strike{deed: []deed{dropAndMute, dropAndCut, halve}[dice%3], struck: make(chan struct{})}
			w.arm(x)
			select {
			case <-x.struck:
				if x.deed == dropAndMute { // its client notices by a timeout; not all are to wait for that
					s.over(200 * time.Millisecond)
					x.line.End()
				}
			case <-time.After(time.Second):
				w.disarm()
			case <-s.stop:
				w.disarm()
			}
		case dice < 13:
			w.set(weather{delay: [2]time.Duration{2 * time.Millisecond, 2 * time.Millisecond}, vary: 5 * time.Millisecond,
				tear: dice == 12})
			s.over(rest / 2)
			w.set(weather{})
		case dice < 14:
			w.set(weather{hold: [2]bool{upstream: true}})
			s.over(min(rest, 400*time.Millisecond))
			w.set(weather{})
		case dice < 16:
			s.admin.Do(context.Background(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		case dice < 18:
			s.admin.Do(context.Background(), "CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
		case dice < 19:
			s.admin.ScriptFlush(context.Background())
		default:
			s.restart()
		}
		s.faults.Add(1)
	}
}

// restart lets go of the server also where it does not come back, which ends the test: it is not to hang then.
func (s *soak) restart() {
	s.up.Lock()
	defer s.up.Unlock()
	s.server.Restart()
}

// sample takes one, unless the server is away.
func (s *soak) sample() {
	s.t.Helper()
	s.up.RLock()
	defer s.up.RUnlock()
	ctx := context.Background()
	x := sample{at: time.Since(s.began), operations: int(s.operations.Load()), faults: int(s.faults.Load())}
	told := func(field string) int {
		n, _ := strconv.Atoi(s.server.Info(field))
		return n
	}
	s.admin.Ping(ctx) // the first command after a restart may fail
	channels, err := s.admin.PubSubChannels(ctx, "*").Result()
	if err != nil {
		return
	}
	keys, err := s.admin.Keys(ctx, "*").Result()
	if err != nil {
		return
	}
	markers := 0
	for _, k := range keys {
		if strings.HasPrefix(k, "mortise:1:once:") {
			markers++
		}
	}
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	x.values = [...]int{
		int(m.HeapAlloc), resident(s.t), runtime.NumGoroutine(), told("connected_clients"), len(channels),
		len(keys) - markers, markers, told("used_memory"), told("tracking_total_keys"),
	}
	s.samples = append(s.samples, x)
}

// resident is how much memory the kernel counts for this process.
func resident(t *testing.T) int {
	t.Helper()
	b := harness.Must(os.ReadFile("/proc/self/statm"))(t)
	pages := harness.Must(strconv.Atoi(strings.Fields(string(b))[1]))(t)
	return pages * os.Getpagesize()
}

func (x sample) row() []string {
	row := []string{x.at.Round(100 * time.Millisecond).String(), strconv.Itoa(x.operations), strconv.Itoa(x.faults)}
	for j, m := range measures {
		if m.unit == "MiB" {
			row = append(row, fmt.Sprintf("%.1f", float64(x.values[j])/(1<<20)))
		} else {
			row = append(row, strconv.Itoa(x.values[j]))
		}
	}
	return row
}

func head() []string {
	row := []string{"time", "operations", "faults"}
	for _, m := range measures {
		row = append(row, strings.TrimSpace(m.name+" "+m.unit))
	}
	return row
}

// table is some twenty samples, and the medians of the thirds.
func (s *soak) table() string {
	var b strings.Builder
	line := func(row []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | ")) }
	line(head())
	line(slices.Repeat([]string{"---"}, len(measures)+3))
	for i := 0; i < len(s.samples); i += max(1, len(s.samples)/20) {
		line(s.samples[i].row())
	}
	for i, which := range []string{"first third", "second", "last"} {
		n := len(s.samples) / 3
		if n == 0 {
			break
		}
		of := s.samples[i*n : (i+1)*n]
		x := sample{operations: of[n-1].operations - of[0].operations, faults: of[n-1].faults - of[0].faults}
		for j := range measures {
			x.values[j] = median(of, j)
		}
		row := x.row()
		row[0] = which + ", median"
		line(row)
	}
	return b.String()
}

func (s *soak) write(file string) {
	s.t.Helper()
	f := harness.Must(os.Create(file))(s.t)
	defer f.Close()
	w := csv.NewWriter(f)
	w.Write(head())
	for _, x := range s.samples {
		w.Write(x.row())
	}
	w.Flush()
	harness.OK(s.t, w.Error())
}

// end shuts all down, and looks at what is left.
func (s *soak) end() {
	s.t.Helper()
	for _, w := range s.wires {
		w.set(weather{})
	}
	for _, c := range s.clients {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		harness.Check(s.t, c.Shutdown(ctx))
		cancel()
		c.below()
	}
	var keys []string
	gone := harness.Awaits(patience, func() bool {
		keys = slices.DeleteFunc(s.admin.Keys(context.Background(), "*").Val(), func(k string) bool {
			return slices.ContainsFunc([]string{"redisson_lock_token:{fenced:", "counting semaphore:", "semaphore:", "latch:",
				"mortise:1:", "{semaphore:"},
				func(of string) bool { return strings.HasPrefix(k, of) })
		})
		return len(keys) == 0
	})
	harness.ErrorIf(s.t, !gone, "%d keys are left: %.300q", len(keys), keys)
}
