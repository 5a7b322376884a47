package cas_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/cas"
	"github.com/mortise-go/mortise/backend/cas/castest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// slow is a driver whose requests and replies are on their way for a while.
type slow struct {
	cas.Driver
	travels func()
}

func (d slow) Swap(ctx context.Context, in []cas.Swap, out []cas.Swapped) error {
	d.travels()
	defer d.travels()
	return d.Driver.Swap(ctx, in, out)
}

// Without a clock of the store no lease ends early, however long requests are on their way and whoever writes the value
// meanwhile; and each ends.
func TestWithoutAClockALeaseEndsAndNotEarly(t *testing.T) {
	for seed := range 20 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := castest.NewClockless()
				read := func(s backend.Store, owner string) bool {
					r, err := s.Capabilities().ReadWrite.AcquireRead(background,
						backend.ReadRequest{Name: "n", Owner: owner, Lease: lasting})
					check.NoError(t, err)
					return r.Granted
				}
				write := func(s backend.Store) bool {
					r, err := s.Capabilities().ReadWrite.AcquireWrite(background,
						backend.WriteRequest{Name: "n", Owner: "w:1", Lease: lasting})
					check.NoError(t, err)
					return r.Granted
				}
				travels := func() { time.Sleep(rand.N(300 * time.Millisecond)) }
				var sessions []backend.Store
				for range 4 {
					sessions = append(sessions, open(t, cas.New(func() (cas.Driver, error) {
						return slow{m.Driver(), travels}, nil
					})))
				}
				began := time.Now()
				check.FatalIf(t, !read(sessions[0], "a:1"), "a reader is refused")
				over := make(chan struct{})
				var all sync.WaitGroup
				for i, s := range sessions[1:3] {
					all.Go(func() { // readers that come and go
						for n := 0; ; n++ {
							select {
							case <-over:
								return
							case <-time.After(rand.N(time.Second)):
							}
							owner := fmt.Sprintf("r%d:%d", i, n)
							if read(s, owner) {
								_, err := s.Capabilities().ReadWrite.ReleaseRead(background,
									backend.ReleaseRequest{Name: "n", Owner: owner})
								check.NoError(t, err)
							}
						}
					})
				}
				for !write(sessions[3]) {
					check.FatalIf(t, time.Since(began) > 10*lasting, "the lease has not ended after %v", time.Since(began))
					time.Sleep(20 * time.Millisecond)
				}
				held := time.Since(began)
				check.ErrorIf(t, held < lasting-time.Millisecond, "a lease of %v ended after %v", lasting, held)
				close(over)
				all.Wait()
			})
		})
	}
}

const lasting = 10 * time.Second
