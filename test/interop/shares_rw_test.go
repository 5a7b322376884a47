package interop

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// Threads of a JVM that write beside eight clients of mortise, which write, or half of which read: neither side is
// starved. Java does not queue, so its share of holds of 5 ms is less than half.
func TestSharesOfReadWriteLocks(t *testing.T) {
	s := &site{servers: []*redistest.Server{redistest.Start(t)}}
	near := theJava(t, versions[len(versions)-1]).open(t, s, "near", 30*time.Second)
	for _, readers := range []int{0, 4} {
		t.Run(fmt.Sprint(readers, " readers"), func(t *testing.T) {
			var all []mortise.Locker
			for i := range 8 {
				c := harness.Must(mortise.New(adapters[0].open(t, s)))(t)
				t.Cleanup(func() { c.Shutdown(context.Background()) })
				if i < readers {
					all = append(all, c.RW().Read)
				} else {
					all = append(all, c.RW().Write)
				}
			}
			got := contest{"write", 8, all, 5 * time.Millisecond, max(*sharesFor, 2*time.Second)}.run(t, near)
			t.Logf("Java has %d of %d, a share of %.2f; its longest wait %v, Go's %v", got.java, got.java+got.golang,
				got.ofJava(), got.longJava, got.longGolang)
			harness.ErrorIf(t, got.java == 0 || got.golang == 0, "a side got nothing: %+v", got)
			asBusy(t, got.longGolang > time.Second, "a client of mortise waited for %v", got.longGolang)
		})
	}
}
