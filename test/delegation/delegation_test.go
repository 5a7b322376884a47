//go:build linux

package delegation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/test/internal/harness"
)

var transports = []string{"http", "grpc"}

// parked is a job whose last service stands still inside. again has each lock once more when its
// callees have answered, losing stay until the lock is lost.
func parked(name, via string) job {
	return job{Lock: name, Visit: "holder:", Via: via, Told: true, Park: true}
}
func (j job) again() job  { j.Again = true; return j }
func (j job) losing() job { j.Lose = true; return j }

// eachWay runs a test with each client library over each transport.
func eachWay(t *testing.T, test func(t *testing.T, client, via string)) {
	harness.EachLibrary(t, func(t *testing.T, client string) {
		for _, via := range transports {
			harness.Beside(t, via, func(t *testing.T) { test(t, client, via) })
		}
	})
}

// long is a watchdog timeout that no test waits for.
const long = 30 * time.Second

// a holds the lock and calls b, which locks it and calls a, which locks it. Told, each enters; not told, the
// same program waits for itself until its deadline.
func TestACalleeThatCallsBack(t *testing.T) {
	harness.EachLibrary(t, func(t *testing.T, client string) {
		f := newFleet(t, client, long)
		for _, via := range transports {
			name := f.lock()
			f.fine(f.run(job{Lock: name, Visit: via, Via: via, Told: true, Again: true}, "a", "b", "a"), 6)
			f.free(name)

			name = f.lock()
			const deadline = 1500 * time.Millisecond
			begin := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), deadline)
			r := f.result(f.begin(ctx, job{Lock: name, Visit: via + " untold:", Via: via}, "a", "b", "a"))
			cancel()
			took := time.Since(begin)
			harness.ErrorIf(t, took < deadline || !strings.Contains(r.Err, "deadline") || r.Visits != 0,
				"not told, it ended after %v: %+v", took, r)
			f.until("all have left", func(inside []visit) bool { return len(inside) == 0 })
			f.free(name)
		}
		_, deep := f.seen()
		harness.ErrorIf(t, deep < 4, "%d inside at most", deep)
	})
}

// Many calls at once of one caller, to three services, itself among them: one after the other, each inside
// alone. The witness judges.
func TestParallelCallees(t *testing.T) {
	harness.EachLibrary(t, func(t *testing.T, client string) {
		f := newFleet(t, client, long)
		for range 3 {
			for _, via := range transports {
				name := f.lock()
				f.fine(f.run(job{Lock: name, Visit: via + name, Via: via, Told: true, Fan: 6}, "a", "b|c|a", "c"), 13)
				f.free(name)
			}
			// And beside others that want the lock for themselves.
			name := f.lock()
			var wg sync.WaitGroup
			for i, first := range []string{"a", "b", "c"} {
				wg.Go(func() {
					r := f.run(job{Lock: name, Visit: fmt.Sprint("tree", name, i, ":"), Via: transports[i%2], Told: true, Fan: 4},
						first, "a|b|c", "b")
					harness.ErrorIf(t, r.Err != "" || r.Visits != 9, "%+v", r)
				})
			}
			wg.Wait()
			f.free(name)
		}
		total, deep := f.seen()
		t.Logf("%d visits, %d deep", total, deep)
	})
}

// A callee is killed: no service enters under its caller until its own lease is over, and then one does. The
// caller goes on.
func TestACalleeIsKilled(t *testing.T) {
	eachWay(t, func(t *testing.T, client, via string) {
		const lease = 4 * time.Second
		f := newFleet(t, client, lease)
		name := f.lock()
		holder := f.begin(context.Background(), parked(name, via).again(), "a", "b")
		f.parkedNow("holder:a>b0")
		f.kill("b")
		machine, killed := redistest.Timed(t), time.Now()
		r := f.result(holder) // a's call of b failed; then it locked again, behind the dead
		after := time.Since(killed)
		harness.FatalIf(t, r.Kind != "call" || r.Visits != 2, "%+v", r)
		// It was renewed a third of the lease before.
		harness.ErrorIf(t, after < lease/4, "the dead callee's hold was free after %v, its lease is %v", after, lease)
		machine.Within(t, "after the callee was killed, its hold", after, lease+3*time.Second)
		f.free(name)
		f.fine(f.run(job{Lock: name, Visit: "next:", Via: via, Told: true}, "c", "a"), 2)
	})
}

// A caller is killed: its callee, which goes on, keeps the lock; a stranger gets it when both are over. Nothing
// else is left.
func TestACallerIsKilled(t *testing.T) {
	eachWay(t, func(t *testing.T, client, via string) {
		const lease = 4 * time.Second
		f := newFleet(t, client, lease)
		name := f.lock()
		caller := job{Lock: name, Visit: "caller:", Via: via, Told: true, Park: true, Outlive: true}
		f.begin(context.Background(), caller, "a", "b")
		f.parkedNow("caller:a>b0")
		f.kill("a")
		stranger := f.begin(context.Background(), job{Lock: name, Visit: "stranger:"}, "c")
		// Longer than the lease of the dead, and than that of the callee if it were not renewed.
		select {
		case r := <-stranger:
			t.Fatalf("a stranger was answered while the callee is inside: %+v", r)
		case <-time.After(2 * lease):
		}
		harness.FatalIf(t, !f.isNow("caller:a>b0"), "the callee has left")
		f.letGo("caller:a>b0")
		machine, released := redistest.Timed(t), time.Now()
		f.fine(f.result(stranger), 1)
		// The dead caller's lease was over long before.
		after := time.Since(released)
		machine.Within(t, "after the callee had left, the lock", after, lease)
		f.free(name)
	})
}

// Redis is restarted while a callee is inside. With its data, all go on; without, caller and callee are both
// told that the lock is lost.
func TestRedisIsRestarted(t *testing.T) {
	t.Run("with its data", func(t *testing.T) {
		eachWay(t, func(t *testing.T, client, via string) {
			const lease = 6 * time.Second
			f := newFleet(t, client, lease, redistest.WithConfig("appendonly yes", "appendfsync always"))
			name := f.lock()
			holder := f.begin(context.Background(), parked(name, via).again(), "a", "b")
			f.parkedNow("holder:a>b0")
			f.redis.Restart()
			time.Sleep(lease + time.Second) // both are renewed on what Redis remembers
			f.letGo("holder:a>b0")
			f.fine(f.result(holder), 4)
			f.free(name)
			f.fine(f.run(job{Lock: name, Visit: "next:", Via: via, Told: true}, "c", "a"), 2)
		})
	})
	t.Run("empty", func(t *testing.T) {
		eachWay(t, func(t *testing.T, client, via string) {
			f := newFleet(t, client, 3*time.Second)
			name := f.lock()
			holder := f.begin(context.Background(), parked(name, via).losing(), "a", "b")
			f.parkedNow("holder:a>b0") // it is not let go: only the loss ends it
			f.redis.Restart()
			r := f.result(holder)
			harness.ErrorIf(t, r.Kind != "lost" || !strings.HasPrefix(r.Err, "a: "), "the caller: %+v", r)
			f.until("both have left", func(inside []visit) bool { return len(inside) == 0 })
			f.free(name)
		})
	})
}

// The keys are rotated while a callee is inside: what is under way goes on, what begins afterwards is signed by the new
// key, and what was signed by the old one is refused.
func TestKeysAreRotatedMidCall(t *testing.T) {
	harness.EachLibrary(t, func(t *testing.T, client string) {
		for _, via := range transports {
			f := newFleet(t, client, long)
			name := f.lock()
			rotate := func(ids ...string) {
				for service := range f.peers {
					f.keys(service, ids...)
				}
			}
			holder := f.begin(context.Background(), parked(name, via).again(), "a", "b", "a", "c")
			f.parkedNow("holder:a>b0>a0>c0")
			rotate("k1", "k2")
			rotate("k2", "k1")
			rotate("k2") // none of them knows k1 now
			f.letGo("holder:a>b0>a0>c0")
			f.fine(f.result(holder), 8)
			f.fine(f.run(job{Lock: name, Visit: "next:", Via: via, Told: true}, "a", "b", "a", "c"), 4)

			f.keys("a", "k1") // one that missed the rotation
			r := f.run(job{Lock: name, Visit: "late:", Via: via, Told: true}, "a", "b")
			harness.ErrorIf(t, r.Kind != "call" || !strings.Contains(r.Err, "unknown_key"), "%+v", r)
			f.free(name)
		}
	})
}

// An entry that was overheard, and is sent again: to the same service while the hold lasts it is one more
// callee, which takes its turn; to another it is refused; after the release it confers nothing.
func TestAnEntryThatWasOverheard(t *testing.T) {
	harness.EachLibrary(t, func(t *testing.T, client string) {
		f := newFleet(t, client, long)
		name := f.lock()
		holder := f.begin(context.Background(), parked(name, "http"), "a", "b")
		f.parkedNow("holder:a>b0")
		resp := harness.Must(f.http.Get(f.peers["a"].HTTP + "/last"))(t)
		entry, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		harness.FatalIf(t, err != nil || len(entry) == 0, "the last entry: %q, %v", entry, err)
		thief := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set(delegation.Header, string(entry))
			return f.http.Transport.RoundTrip(r)
		})}
		steal := func(service string, j job) result {
			j.Visit, j.Lock = "thief:"+service, name
			return post(context.Background(), thief, f.peers[service].HTTP, j)
		}
		if r := steal("c", job{Wait: time.Second}); !strings.Contains(r.Err, "403") ||
			!strings.Contains(r.Err, "wrong_audience") {
			t.Errorf("at another service: %+v", r)
		}
		r := steal("b", job{Wait: time.Second})
		harness.ErrorIf(t, r.Kind != "not acquired" || r.Visits != 0, "while the callee is inside: %+v", r)
		f.letGo("holder:a>b0")
		f.fine(f.result(holder), 2)
		r = steal("b", job{})
		harness.ErrorIf(t, r.Kind != "delegation ended", "after the release: %+v", r)
		next := f.begin(context.Background(), job{Lock: name, Visit: "next:", Via: "http", Told: true, Park: true}, "a", "b")
		f.parkedNow("next:a>b0")
		r = steal("b", job{})
		harness.ErrorIf(t, r.Kind != "delegation ended", "under the next hold: %+v", r)
		f.letGo("next:a>b0")
		f.fine(f.result(next), 2)
		f.free(name)
		harness.ErrorIf(t, bytes.Contains(entry, []byte(name)), "nothing of base64 in it")
	})
}

// A fenced callee has its caller's token, as the entry says it; one that was never drawn, by a holder of a key,
// is refused: the store that it is written to would refuse everybody after it.
func TestFencingTokensGoAlong(t *testing.T) {
	store := memory.New()
	for _, on := range []string{"memory", "go-redis", "rueidis"} {
		t.Run(on, func(t *testing.T) {
			server := redistest.Start(t)
			open := func() (*mortise.Client, mortise.Locker) {
				var b backend.Backend = store
				if on != "memory" {
					b = harness.At(server.Addr()).Backend(t, on)
				}
				c := harness.Client(t, b)
				return c, c.With(mortise.Fenced())
			}
			ctx := context.Background()
			_, caller := open()
			acceptor, callee := open()
			lease := harness.Must(caller.Lock(ctx, "orders:42"))(t)
			defer lease.Unlock(ctx)
			ring := harness.Must(delegation.NewRing(key("k1")))(t)
			issuer := harness.Must(delegation.NewIssuer(ring))(t)
			checker := harness.Must(delegation.NewChecker(ring, "b"))(t)
			entry := harness.Must(issuer.Issue(lease.Context(), "b"))(t)
			enter := func(entry string) (*mortise.Lease, error) {
				within := harness.Must(checker.Accept(ctx, acceptor, entry))(t)
				return callee.TryLock(within, "orders:42")
			}
			got := harness.Must(enter(entry))(t)
			mine := lease.Token()
			token := got.Token()
			harness.ErrorIf(t, token != mine, "the callee's token is %d, the caller's %d", token, mine)
			harness.Check(t, got.Unlock(ctx))

			p := harness.Must(delegation.Decode(entry))(t)
			for _, token := range []int64{mine + 1, mine + int64(time.Hour), 1<<63 - 1} {
				p.Delegations[0].Token = token
				forged := harness.Must(p.Sign(ctx, ring))(t)
				if got, err := enter(forged); !errors.Is(err, delegation.ErrEnded) {
					stolen := got.Token()
					t.Errorf("token %d: %v, a lease with %d", token, err, stolen)
					got.Unlock(ctx)
				}
			}
		})
	}
}
