//go:build linux

package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/test/internal/harness"
)

var (
	loneRuns   = flag.Int("lone.runs", 10, "how many processes of each side take turns in BenchmarkLone")
	loneN      = flag.Int("lone.n", 10000, "how often each of them locks and unlocks")
	loneBeside = flag.String("lone.beside", "", "another build of examples/lone, which takes turns with the others")
)

// loneEnv makes the test binary the floor's process: its value is a loneFloor.
const loneEnv = "MORTISE_BENCH_LONE"

// loneFloor is what a floor's process is told.
type loneFloor struct {
	Floor, Addr, Context string
	N                    int
}

// run does what examples/lone does, with the floor's two commands.
func (k loneFloor) run() error {
	c, err := find(k.Floor)
	if err != nil {
		return err
	}
	opened, err := c.open(k.Addr)
	if err != nil {
		return err
	}
	defer opened.Close()
	f := opened.(*floorLocks)
	took := make([]time.Duration, k.N)
	for i := -k.N / 10; i < k.N; i++ {
		ctx, cancel := loneContexts[k.Context](context.Background())
		began := time.Now()
		owner, keys := f.next(), []string{"lone"}
		granted, err := f.grant(ctx, keys, owner)
		if err == nil && !granted {
			err = errWaits
		}
		if err == nil {
			err = f.unlock(ctx, []string{"lone", channelOf("lone")}, owner)
		}
		if err != nil {
			return err
		}
		took[max(i, 0)] = time.Since(began)
		cancel()
	}
	slices.Sort(took)
	fmt.Printf("p50 %v, p99 %v\n", took[k.N/2], took[k.N*99/100])
	return nil
}

var loneContexts = map[string]func(context.Context) (context.Context, context.CancelFunc){
	"background": func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} },
	"cancel":     context.WithCancel,
	"timeout": func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Minute)
	},
}

// loneRow is one client with one kind of context.
type loneRow struct {
	client, context string
	bar             float64 // p50 of a Lock with its Unlock to the floor's
}

var loneRows = []loneRow{
	{"go-redis", "background", 1.05},
	{"rueidis", "background", 1.05},
	{"rueidis", "timeout", 1.1},
	{"go-redis", "timeout", 1.25},
}

// loneSide is what takes turns: the floor, examples/lone, perhaps another build of that. Its times are µs, by process.
type loneSide struct {
	start    func() *exec.Cmd
	p50, p99 []float64
}

// measure runs processes of the floor and of examples/lone, which was built to each of the paths, in turns.
func (r loneRow) measure(t testing.TB, addr string, runs, n int, built ...string) []*loneSide {
	t.Helper()
	sides := []*loneSide{{start: func() *exec.Cmd {
		return harness.Self(loneEnv, loneFloor{"hash floor, " + r.client, addr, r.context, n})
	}}}
	for _, path := range built {
		sides = append(sides, &loneSide{start: func() *exec.Cmd {
			return exec.Command(path, "-redis", addr, "-client", r.client, "-context", r.context, "-n", strconv.Itoa(n))
		}})
	}
	for range runs {
		for _, s := range sides {
			p50, p99 := loneTimes(t, s.start())
			s.p50, s.p99 = append(s.p50, p50), append(s.p99, p99)
		}
	}
	return sides
}

// BenchmarkLone is `make lone`: examples/lone and the hash floor, in turns, each time in a process of its own.
func BenchmarkLone(b *testing.B) {
	addr, built := startRedis(b).Addr(), []string{buildLone(b)}
	if *loneBeside != "" {
		built = append(built, *loneBeside)
	}
	fmt.Printf("| client | context | | p50 | p99 | p50 to the floor's | bar |\n|%s\n", strings.Repeat("---|", 7))
	for _, r := range loneRows {
		if !strings.Contains(r.client+" "+r.context, *only) {
			continue
		}
		sides := r.measure(b, addr, *loneRuns, *loneN, built...)
		floor := median(sides[0].p50)
		for i, s := range sides {
			fmt.Printf("| %s | %s | %s | %s | %s | %.2f | %.2f |\n", r.client, r.context,
				[]string{"hash floor", "mortise", "the other build"}[i],
				micros(median(s.p50)), micros(median(s.p99)), median(s.p50)/floor, r.bar)
		}
		ratio := median(sides[1].p50) / floor
		harness.ErrorIf(b, ratio > r.bar, "%s, %s: p50 is %.2f of the floor's, above %.2f", r.client, r.context, ratio, r.bar)
	}
}

// buildLone builds examples/lone with this module's versions of the client libraries, which the floors have, too.
func buildLone(t testing.TB) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "lone")
	out, err := exec.Command("go", "build", "-o", path, "github.com/mortise-go/mortise/examples/lone").CombinedOutput()
	harness.FatalIf(t, err != nil, "%v\n%s", err, out)
	return path
}

func TestTheLoneCallerAndItsFloorSayWhatTheyTook(t *testing.T) {
	addr, built := startRedis(t).Addr(), buildLone(t)
	for _, r := range loneRows {
		for i, s := range r.measure(t, addr, 1, 20, built) {
			harness.ErrorIf(t, s.p50[0] <= 0 || s.p99[0] < s.p50[0], "%s, %s, side %d: %+v", r.client, r.context, i, s)
		}
	}
}

var loneSaid = regexp.MustCompile(`p50 (\S+), p99 (\S+)`)

// loneTimes are the µs that a process says it took.
func loneTimes(t testing.TB, cmd *exec.Cmd) (p50, p99 float64) {
	t.Helper()
	cmd.Stderr = os.Stderr
	out := harness.Must(cmd.Output())(t)
	m := loneSaid.FindSubmatch(out)
	harness.FatalIf(t, m == nil, "%s says %q", cmd.Path, out)
	x, err1 := time.ParseDuration(string(m[1]))
	y, err2 := time.ParseDuration(string(m[2]))
	harness.OK(t, errors.Join(err1, err2))
	return float64(x.Nanoseconds()) / 1e3, float64(y.Nanoseconds()) / 1e3
}
