package castest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend/cas"
	"github.com/mortise-go/mortise/backend/cas/castest"
)

// broken names, in the environment of a test process, what is wrong with its driver.
const broken = "MORTISE_TEST_BROKEN_DRIVER"

func TestMemory(t *testing.T) {
	castest.Run(t, func(*testing.T) castest.Store {
		m := castest.NewMemory()
		if what := os.Getenv(broken); what != "" {
			return &damaged{Memory: m, what: what, versions: make(map[string][2]int64)}
		}
		return m
	})
}

func TestClockless(t *testing.T) {
	castest.Run(t, func(*testing.T) castest.Store {
		m := castest.NewClockless()
		if what := os.Getenv(broken); what != "" {
			return &damaged{Memory: m, what: what, versions: make(map[string][2]int64)}
		}
		return m
	})
}

// Drivers that are broken on purpose are caught, by the test of what they break.
func TestBrokenDriversAreCaught(t *testing.T) {
	for what, caught := range map[string]string{
		"ignores versions":           "AValueIsReplacedOnlyWhereItHasTheVersion",
		"restarts versions":          "AVersionIsNeverThatOfAnotherValueEvenOverARemoval",
		"has no clock":               "TheStoreStampsAndTellsItsTime",
		"sends notices of all swaps": "NoticesOfASwapThatIsDoneArriveAndNoOthers",
		"stops at a refusal":         "SwapsOfABatchAreIndependent",
	} {
		t.Run(what, func(t *testing.T) {
			isCaught(t, what, "TestMemory", caught)
		})
	}
}

// Those of a store without a clock, too.
func TestBrokenDriversWithoutAClockAreCaught(t *testing.T) {
	for _, what := range []string{"tells too much time", "drops stamps", "tells no time"} {
		t.Run(what, func(t *testing.T) { isCaught(t, what, "TestClockless", "TheStoreStampsAndTellsItsTime") })
	}
}

// isCaught runs a test of a driver that is broken in another process.
func isCaught(t *testing.T, what, test, by string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$/^"+by+"$")
	cmd.Env = append(os.Environ(), broken+"="+what)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--- FAIL: "+test+"/"+by) {
		t.Errorf("a driver that %s is not caught by %s: %v\n%s", what, by, err, out)
	}
}

// damaged is a store whose drivers are broken.
type damaged struct {
	*castest.Memory
	what string
	mu   sync.Mutex
	// versions has, by key, the true version and the one that is told instead.
	versions map[string][2]int64
	extra    int
}

func (s *damaged) Driver() cas.Driver { return &damagedDriver{s.Memory.Driver(), s} }

type damagedDriver struct {
	cas.Driver
	store *damaged
}

func (d *damagedDriver) Swap(ctx context.Context, in []cas.Swap, out []cas.Swapped) error {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	stopped := false
	for i := range in {
		if stopped {
			out[i] = cas.Swapped{}
			continue
		}
		if err := d.one(ctx, in[i], out[i:i+1]); err != nil {
			return err
		}
		stopped = d.store.what == "stops at a refusal" && !out[i].Done
	}
	return d.Driver.Swap(ctx, nil, nil)
}

func (d *damagedDriver) one(ctx context.Context, q cas.Swap, out []cas.Swapped) error {
	swap := func(q cas.Swap) error { return d.Driver.Swap(ctx, []cas.Swap{q}, out) }
	told := d.store.versions[q.Key]
	switch {
	case d.store.what == "ignores versions" && q.Version != cas.Look:
		if err := swap(cas.Swap{Key: q.Key, Version: cas.Look}); err != nil {
			return err
		}
		q.Version = out[0].Version
	case d.store.what == "restarts versions" && q.Version > 0:
		if q.Version == told[1] {
			q.Version = told[0]
		} else {
			q.Version = 1 << 40
		}
	}
	err := swap(q)
	switch r := &out[0]; d.store.what {
	case "restarts versions":
		switch {
		case r.Version == cas.None:
			delete(d.store.versions, q.Key)
		case r.Done:
			told = [2]int64{r.Version, told[1] + 1}
			d.store.versions[q.Key] = told
			r.Version = told[1]
		default:
			r.Version = told[1]
		}
	case "has no clock":
		r.Stamp, r.Now = 0, 0
	case "tells too much time":
		r.Now += 20 * time.Millisecond
	case "drops stamps":
		r.Stamp = 0
	case "tells no time":
		r.Now = r.Stamp
	case "sends notices of all swaps":
		if err == nil && !r.Done && len(q.Notices) > 0 {
			d.store.extra++
			q = cas.Swap{Key: fmt.Sprint("extra", d.store.extra), Value: []byte("1"), Notices: q.Notices}
			return d.Driver.Swap(ctx, []cas.Swap{q}, make([]cas.Swapped, 1))
		}
	}
	return err
}
