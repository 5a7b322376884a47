//go:build linux

package jobs

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// ticks is how many ticks TestTicks awaits.
var ticks = flag.Int("jobs.ticks", 300, "how many ticks TestTicksAreStartedOnce awaits, up to 2000")

const (
	interval = 100 * time.Millisecond
	apart    = 2 * time.Second // the clocks of two processes
	skewEnv  = "MORTISE_JOBS_SKEW"
)

// Three processes whose clocks are two seconds apart run a schedule, and of a hundred runs one is
// killed. No tick is started twice, and of a hundred one at the most is not started at all, apart from those in which
// this machine was late itself.
func TestTicksAreStartedOnce(t *testing.T) {
	t.Parallel()
	machine := redistest.Timed(t)
	program := shifted(t)
	c := newCrew(t, workerConfig{Watchdog: lease, Interval: interval})
	c.First.Store(1 << 62) // none counts yet
	for n := range 3 {
		c.starts(program, time.Duration(n-1)*apart)
	}
	// The store's clock is this machine's. What is started before the first tick that counts is not
	// looked at.
	first := time.Now().Add(3 * time.Second).Truncate(interval)
	c.First.Store(first.UnixMilli())
	kills := 0
	for deadline := first.Add(time.Duration(*ticks) * interval); time.Now().Before(deadline); {
		due := first.Add(time.Duration((2*kills+1)*50) * interval) // in the middle of each hundred
		if kills >= *ticks/100 || time.Now().Before(due) {
			time.Sleep(interval)
			continue
		}
		for n, w := range c.workers {
			if !w.Killed && c.Worker[n].Running.Load() != 0 {
				w.Kill()
				kills++
				c.starts(program, time.Duration(c.Worker[n].Skew.Load()).Round(apart))
				break
			}
		}
	}
	time.Sleep(2 * interval) // that time is the subject: what is started late
	started, twice, missed := 0, 0, 0
	by := make(map[int64]int)
	for n := range *ticks {
		switch e := &c.Ticks[n]; e.Starts.Load() {
		case 0:
			due := first.Add(time.Duration(n) * interval)
			if machine.Late(due.Add(-interval))-machine.Late(due.Add(interval)) < interval/10 {
				missed++
			}
		case 1:
			started++
			by[e.Process.Load()]++
		default:
			twice++
		}
	}
	t.Logf("%d ticks, %d started once, %d more often; %d runs killed; by process %v", *ticks, started, twice, kills, by)
	harness.ErrorIf(t, twice > 0, "%d ticks were started twice", twice)
	harness.ErrorIf(t, started*4 < *ticks*3, "%d of %d ticks were started", started, *ticks)
	harness.ErrorIf(t, missed > *ticks/100, "%d of %d ticks were not started, and nothing was late", missed, *ticks)
	harness.ErrorIf(t, kills != *ticks/100, "%d runs were killed, want %d", kills, *ticks/100)
	harness.ErrorIf(t, len(by) < 2, "one process started all ticks: %v", by)
}

// starts starts a process and checks that its clock is as it should be.
func (c *crew) starts(program string, skew time.Duration) {
	c.t.Helper()
	w := c.start(program, skew)
	off := time.Duration(c.Worker[w.number].Skew.Load()) - skew
	harness.FatalIf(c.t, off.Abs() > 100*time.Millisecond, "the clock of process %d is off by %v", w.number, off)
}

// shifted builds this test binary with a time.Now that is ahead by what skewEnv says.
func shifted(t *testing.T) (program string) {
	t.Helper()
	const now, ahead = "sec, nsec, mono := runtimeNow()\n", `
var skew = func() (n int64) {
	s, _ := syscall.Getenv("` + skewEnv + `")
	for _, c := range []byte(s) {
		if c != '-' {
			n = 10*n + int64(c-'0')
		}
	}
	if len(s) > 0 && s[0] == '-' {
		n = -n
	}
	return n
}()
`
	dir := t.TempDir()
	goroot := strings.TrimSpace(string(harness.Must(exec.Command("go", "env", "GOROOT").Output())(t)))
	source := filepath.Join(goroot, "src", "time", "time.go")
	text := harness.Must(os.ReadFile(source))(t)
	harness.FatalIf(t, bytes.Count(text, []byte("func Now() Time {\n\t"+now)) != 1,
		"%s has no %q in Now any more: have the shift follow it", source, now)
	changed := strings.Replace(string(text), "func Now() Time {\n\t"+now, "func Now() Time {\n\t"+now+
		"\tns := int64(nsec) + skew\n\tsec, nsec = sec+ns/1e9, int32(ns%1e9)\n"+
		"\tif nsec < 0 {\n\t\tsec, nsec = sec-1, nsec+1e9\n\t}\n", 1) + ahead
	if !strings.Contains(changed, `"syscall"`) {
		changed = strings.Replace(changed, "import (\n", "import (\n\t\"syscall\"\n", 1)
	}
	own := filepath.Join(dir, "time.go")
	harness.OK(t, os.WriteFile(own, []byte(changed), 0o600))
	overlay := harness.Must(json.Marshal(map[string]map[string]string{"Replace": {source: own}}))(t)
	harness.OK(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	program = filepath.Join(dir, "shifted.test")
	out, err := exec.Command("go", "test", "-c", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, ".").
		CombinedOutput()
	harness.OKf(t, err, "go test -c -overlay: %s", out)
	return program
}
