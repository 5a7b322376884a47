package interop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/quorum"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// seat is where one of several locks is: a name on a store, with a client of either
// language there.
type seat struct {
	pair     *pair
	redisson *redisson
	golang   *golang
	name     string
}

// together takes several locks as one: LockAll against RedissonMultiLock, or Quorum against
// RedissonRedLock.
type together struct {
	*pair
	kind  string // multi or red, the driver's
	seats []seat
	// lock is Go's for it, on clients of their own if fresh; backwards names the parts in another order.
	lock func(fresh, backwards bool) func(ctx context.Context, opts ...mortise.Option) (*mortise.Lease, error)
}

// several are names on one store: on a cluster, on its masters.
func several(p *pair) {
	var names []string
	for _, part := range []string{"a", "b", "c"} {
		names = append(names, p.name+"/"+part)
	}
	g := p.golang(slow)
	s := &together{pair: p, kind: "multi"}
	for _, name := range names {
		s.seats = append(s.seats, seat{p, p.redisson, g, name})
	}
	s.lock = lockAll(s)
	s.test()
}

// lockAll is LockAll on the seats.
func lockAll(s *together) func(fresh, backwards bool) func(context.Context, ...mortise.Option) (*mortise.Lease, error) {
	return func(fresh, backwards bool) func(context.Context, ...mortise.Option) (*mortise.Lease, error) {
		s.Helper()
		var parts mortise.Parts
		made := make(map[*golang]*golang)
		seats := slices.Clone(s.seats)
		if backwards {
			slices.Reverse(seats)
		}
		for _, seat := range seats {
			g := seat.golang
			if fresh {
				if made[g] == nil {
					made[g] = seat.pair.golang(slow)
				}
				g = made[g]
			}
			parts = parts.And(g.Client, seat.name)
		}
		return func(ctx context.Context, opts ...mortise.Option) (*mortise.Lease, error) {
			return parts.Lock(ctx, opts...)
		}
	}
}

func quorumOf(s *together) func(fresh, backwards bool) func(context.Context, ...mortise.Option) (*mortise.Lease,
	error) {
	return func(fresh, _ bool) func(context.Context, ...mortise.Option) (*mortise.Lease, error) {
		s.Helper()
		var clients []*mortise.Client
		for _, seat := range s.seats {
			g := seat.golang
			if fresh {
				g = seat.pair.golang(slow, voter)
			}
			clients = append(clients, g.Client)
		}
		quorum := harness.Must(quorum.New(clients...))(s)
		return func(ctx context.Context, opts ...mortise.Option) (*mortise.Lease, error) {
			return quorum.Lock(ctx, s.seats[0].name, opts...)
		}
	}
}

// ask is a request to a Java thread for all of the locks.
func (s *together) ask(op string, wait time.Duration) request {
	r := request{Op: op, Kind: s.kind, Wait: wait.Milliseconds()}
	for _, seat := range s.seats {
		r.Parts = append(r.Parts, part{seat.redisson.name, seat.name})
	}
	return r
}

func (s *together) thread(name string) *thread { return s.seats[0].redisson.thread(s.T, name) }

// refused asserts that Go cannot have all.
func (s *together) refused(lock func(context.Context, ...mortise.Option) (*mortise.Lease, error)) {
	s.Helper()
	lease, err := lock(context.Background(), in(2*time.Second))
	if err == nil {
		lease.Unlock(context.Background())
	}
	if !errors.Is(err, mortise.ErrNotAcquired) && !errors.Is(err,
		mortise.ErrUnavailable) { // the second: no answer in a wait so short
		s.Errorf("Go asks for what Java holds: %v", err)
	}
}

func (s *together) test() {
	ctx := context.Background()
	lock := s.lock(false, false)
	j, other := s.thread("j"), s.thread("other")

	// Java holds, Go waits.
	harness.FatalIf(s, !j.do(s.ask("tryLock", 0)).OK, "Java cannot take what is free")
	for _, seat := range s.seats {
		seat.golang.refused(plainly, seat.name)
	}
	s.refused(lock)
	w := &waiting{done: make(chan struct{})}
	since := make([]int, len(s.seats))
	for i, seat := range s.seats {
		since[i] = seat.pair.site.tries(seat.name, seat.golang.ID())
	}
	go func() {
		defer close(w.done)
		w.lease, w.err = lock(ctx, in(minutes))
		w.at = time.Now()
	}()
	until(s.T, "Go to wait", func() bool {
		for i, seat := range s.seats {
			if seat.pair.site.tries(seat.name, seat.golang.ID()) >= since[i]+1 &&
				seat.pair.site.subscribers(s.T, seat.name) > 0 {
				return true
			}
		}
		return false
	})
	event := time.Now()
	j.do(s.ask("unlock", 0))
	d, lease := s.seats[0].golang.await(w, event)
	s.figure("Java's release of all to Go's lease", d)

	// Go holds, Java waits.
	harness.FatalIf(s, j.do(s.ask("tryLock", 0)).OK, "Java got what Go holds")
	asked := s.seats[0].pair.site.tries(s.seats[0].name, j.owner())
	call := j.start(s.ask("tryLock", minutes))
	until(s.T, "Java to wait", func() bool { return s.seats[0].pair.site.tries(s.seats[0].name, j.owner()) >= asked+2 })
	event = time.Now()
	s.seats[0].golang.unlock(lease)
	got := j.client.java.wait(call, 3*long) // in turns, each for a share of its patience
	harness.FatalIf(s, got.Error != "" || !got.OK, "Java waits: %+v", got)
	s.figure("Go's release of all to Java's lock", call.at.Sub(event))
	s.refused(lock)
	j.do(s.ask("unlock", 0))

	// One is a stranger's. Of several locks none can be had then, and none is left held; of a Quorum one
	// of three does not matter: still only one gets it.
	last := s.seats[len(s.seats)-1]
	stranger := harness.Must(last.pair.golang(slow).Lock(ctx, last.name, in(long)))(s)
	if s.kind == "multi" {
		harness.ErrorIf(s, j.do(s.ask("tryLock", 0)).OK, "Java got all where Go holds one")
		s.refused(lock)
		for _, seat := range s.seats[:len(s.seats)-1] {
			l := seat.redisson.thread(s.T, "other").lockOf("plain", seat.name)
			if _, ok := l.tryLock(long, minutes); !ok { // what came late is taken back in the background
				s.Errorf("%s is held by a call that did not get all", seat.name)
				continue
			}
			l.unlock()
		}
	} else {
		harness.ErrorIf(s, !j.do(s.ask("tryLock", 0)).OK, "Java cannot take two of three")
		s.refused(lock)
		j.do(s.ask("unlock", 0))
		lease, err := lock(ctx, in(long))
		harness.FatalIf(s, err != nil, "Go takes two of three: %v", err)
		harness.ErrorIf(s, other.do(s.ask("tryLock", 0)).OK, "Java got what Go holds with two of three")
		last.golang.unlock(lease)
	}
	harness.Check(s, stranger.Unlock(ctx))
	s.fight()
}

// fight has two owners of each language take all of it again and again.
func (s *together) fight() {
	const each = 8
	ctx := context.Background()
	var inside, total atomic.Int32
	var wg sync.WaitGroup
	within := func(who string) {
		n := inside.Add(1)
		harness.ErrorIf(s, n != 1, "%s is in with %d others", who, n-1)
		total.Add(1)
		time.Sleep(time.Millisecond)
		inside.Add(-1)
	}
	for i := range 2 {
		j := s.thread(fmt.Sprint("fighter", i))
		wg.Go(func() {
			for range each {
				for start := time.Now(); ; {
					got := j.client.java.wait(j.start(s.ask("tryLock", long)), 3*long)
					if got.Error == "" && got.OK {
						break
					}
					if got.Error != "" || time.Since(start) > 3*long {
						s.Errorf("Java does not get it in %v: %+v", time.Since(start), got)
						return
					}
				}
				within("Java")
				if got := j.client.java.wait(j.start(s.ask("unlock", 0)), long); got.Error != "" {
					s.Errorf("Java gives up all: %+v", got)
					return
				}
			}
		})
		lock := s.lock(true, i == 1)
		wg.Go(func() {
			for range each {
				lease, err := lock(ctx, in(3*long))
				if err != nil {
					s.Errorf("Go: %v", err)
					return
				}
				within("Go")
				if err := lease.Unlock(ctx); err != nil {
					s.Errorf("Go: %v", err)
					return
				}
			}
		})
	}
	start := time.Now()
	wg.Wait()
	s.figure(fmt.Sprintf("%d turns of four in", total.Load()), time.Since(start))
}

// voter is for clients of a Quorum: the servers are new, and none has forgotten anything.
var voter = quorum.WithRejoinDelay(0)

// TestServers: several stores that know nothing of each other. Which stores they are does not
// matter to either side, so there are no clusters here.
func TestServers(t *testing.T) {
	t.Parallel()
	var sites []*site
	for range 3 {
		sites = append(sites, newSite(t, redistest.Start(t)))
	}
	for _, version := range versions {
		harness.Beside(t, "redisson-"+version, func(t *testing.T) {
			j := theJava(t, version)
			var clients []*redisson
			for i, s := range sites {
				clients = append(clients, j.open(t, s, fmt.Sprint(i), 0))
			}
			for _, a := range adapters {
				for _, kind := range []string{"multi", "red"} {
					harness.Beside(t, a.name+"/"+kind, func(t *testing.T) {
						s := &together{kind: kind}
						name := strings.Join([]string{kind, version, a.name}, "/")
						for i, site := range sites {
							p := &pair{T: t, site: site, adapter: a, java: j, redisson: clients[i], name: name}
							s.seats = append(s.seats, seat{p, clients[i], p.golang(slow, voter), name})
						}
						s.pair = s.seats[0].pair
						if s.lock = lockAll(s); kind == "red" {
							s.lock = quorumOf(s)
						}
						s.test()
						if t.Failed() {
							return
						}
						for _, seat := range s.seats {
							seat.pair.clean()
						}
					})
				}
			}
		})
	}
}
