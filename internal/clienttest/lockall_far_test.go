package clienttest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
)

// Calls of LockAll that want each other's locks all come to an end, however far away the store is.
func TestLockAllComesToAnEndFarFromItsStore(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	for _, ms := range []time.Duration{1, 30, 100, 400} {
		trip := ms * time.Millisecond
		t.Run(fmt.Sprint(trip), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				slow := hooks{}
				for _, op := range []string{"Acquire", "AcquireAll", "Release", "ReleaseAll", "Serve"} {
					slow[op] = delayed(trip)
				}
				began := time.Now()
				var all sync.WaitGroup
				for range 3 {
					c := on(t, spyOn(s, "Queue Batch", slow))
					for range 4 {
						all.Go(func() {
							for range 4 {
								order := rand.Perm(len(names))[:1+rand.IntN(len(names))]
								var parts Parts
								for _, i := range order {
									parts = parts.And(c, names[i])
								}
								must(t, thenUnlock(parts.Lock(t.Context())))
							}
						})
					}
				}
				all.Wait()
				t.Logf("48 calls took %v, %.0f round trips each", time.Since(began), float64(time.Since(began)/48)/float64(trip))
			})
		})
	}
}
