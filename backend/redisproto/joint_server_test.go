//go:build unix

package redisproto_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/scripts"
)

// atOnce has n calls meet: the server does not answer until all have been begun.
func atOnce(srv *redistest.Server, n int, call func(i int)) {
	srv.Pause()
	var begun, done sync.WaitGroup
	begun.Add(n)
	for i := range n {
		done.Go(func() {
			begun.Done()
			call(i)
		})
	}
	begun.Wait()
	time.Sleep(20 * time.Millisecond) // for them to have called; if not, there are more commands
	srv.Resume()
	done.Wait()
}

func TestConcurrentRequestsShareFewCommands(t *testing.T) {
	check.Long(t)
	overProxies(t, func(t *testing.T, _ string, srv *redistest.Server, proxy *redistest.Proxy, b backend.Backend) {
		s, _ := session(t, b)
		const n = 64
		lock := func(i int) string { return fmt.Sprint("lock", i) }
		for _, times := range []string{"unknown to the server", "known"} {
			acquire(t, s, "first", "x", time.Minute)
			proxy.Reset()
			atOnce(srv, n, func(i int) {
				r, err := s.Acquire(t.Context(), anykind.AcquireRequest{Name: lock(i), Owner: fmt.Sprint("o", i),
					Lease: time.Minute})
				check.ErrorIf(t, err != nil || !r.Granted, "%d: %+v, %v", i, r, err)
			})
			if sent := proxy.Count(redistest.Named("EVALSHA", "EVAL")); sent > n/2 {
				t.Errorf("%s: %d commands for %d acquisitions", times, sent, n)
			}
			for i := range n {
				if got := fmt.Sprint(do(t, srv, "HGETALL", lock(i))); got != fmt.Sprintf("[o%d 1]", i) {
					t.Errorf("%s is %s", lock(i), got)
				}
				if left := do(t, srv, "PTTL", lock(i)).(int64); left <= 30_000 || left > 60_000 {
					t.Errorf("%s has %d ms left", lock(i), left)
				}
			}
			// Every other one is asked for by another owner: refused, and left alone.
			atOnce(srv, n, func(i int) {
				r, err := s.Acquire(t.Context(), anykind.AcquireRequest{Name: lock(i), Owner: "other",
					Lease: time.Minute})
				check.ErrorIf(t, err != nil || r.Granted || r.Remaining <= 30*time.Second, "%d, held: %+v, %v", i, r, err)
			})
			proxy.Reset()
			atOnce(srv, n, func(i int) {
				owner := fmt.Sprint("o", i)
				if i%2 == 1 {
					owner = "other"
				}
				r, err := s.Release(t.Context(), anykind.ReleaseRequest{Name: lock(i), Owner: owner})
				check.ErrorIf(t, err != nil || r.Held != (i%2 == 0), "%d, released by %s: %+v, %v", i, owner, r, err)
			})
			if sent := proxy.Count(redistest.Named("EVALSHA", "EVAL")); sent > n/2 {
				t.Errorf("%s: %d commands for %d releases", times, sent, n)
			}
			if keys := do(t, srv, "DBSIZE"); keys != int64(n/2+1) {
				t.Errorf("%v keys, want %d", keys, n/2+1)
			}
			do(t, srv, "FLUSHALL")
		}
	})
}

// A caller that may not use a name, or finds other data there, is told so, and those beside it get their locks.
func TestARefusedRequestDoesNotAffectOtherLocks(t *testing.T) {
	check.Long(t)
	for name, adapter := range adapters {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t, redistest.WithACL("some on >p ~ok* ~redisson* ~mortise* &* +@all"))
			do(t, srv, "SET", "ok:string", "x")
			s, _ := session(t, adapter(t, srv.Addr(), login{"some", "p"}))
			acquire(t, s, "ok:first", "x", time.Minute)
			const n = 48
			lock := func(i int) string {
				switch i % 8 {
				case 3:
					return fmt.Sprint("forbidden:", i)
				case 5:
					return "ok:string"
				}
				return fmt.Sprint("ok:", i)
			}
			check := func(what string, i int, done bool, err error) {
				switch i % 8 {
				case 3:
					if err == nil || !strings.Contains(err.Error(), "NOPERM") {
						t.Errorf("%s of %s: %v, %v; want it forbidden", what, lock(i), done, err)
					}
				case 5:
					check.ErrorIf(t, err == nil || !strings.Contains(err.Error(), "WRONGTYPE"), "%s of a string: %v, %v", what, done,
						err)
				default:
					if err != nil || !done {
						t.Errorf("%s of %s: %v, %v", what, lock(i), done, err)
					}
				}
			}
			atOnce(srv, n, func(i int) {
				r, err := s.Acquire(t.Context(), anykind.AcquireRequest{Name: lock(i), Owner: "x", Lease: time.Minute})
				check("acquisition", i, r.Granted, err)
			})
			atOnce(srv, n, func(i int) {
				r, err := s.Release(t.Context(), anykind.ReleaseRequest{Name: lock(i), Owner: "x"})
				check("release", i, r.Held, err)
			})
		})
	}
}

// Waiters are told of a release among many what they are told of one. A lock that has a queue is released by itself:
// the script for many says so, and does nothing.
func TestAReleaseOfManyTellsWhatOneTells(t *testing.T) {
	srv := redistest.Start(t)
	const channel = "redisson_lock__channel:{n}"
	told := listen(t, srv, channel, channel+":mortise", channel+":to:a", channel+":to:b")
	hear := func(script, name string) (answer, said string) {
		t.Helper()
		args := []string{"x", "0", "publish"}
		if script == scripts.JointSource {
			args = []string{"publish", "x", "0"}
		}
		answer = fmt.Sprint(do(t, srv, append([]string{"EVAL", script, "2", name, channel}, args...)...))
		do(t, srv, "PUBLISH", channel, "over")
		for {
			payload := strings.TrimPrefix(told(), channel)
			if payload == " over" {
				return strings.Trim(answer, "[]"), said
			}
			said += payload
		}
	}
	for name, queue := range map[string]string{"n": "mortise:1:next:{n}2", "{n}": "mortise:1:next:{n}:2"} {
		for _, waiting := range [][]string{nil, {"pa:1"}, {"pa:1", "pb:2"}} {
			held := func() string {
				do(t, srv, "FLUSHALL")
				do(t, srv, "HSET", name, "x", "1")
				for place, entry := range waiting {
					do(t, srv, "ZADD", queue, fmt.Sprint(place), entry)
				}
				return fmt.Sprintf("%v [x 1]", waiting)
			}
			state := func() string {
				return fmt.Sprintf("%v %v", do(t, srv, "ZRANGE", queue, "0", "-1"), do(t, srv, "HGETALL", name))
			}
			before := held()
			answer, said := hear(scripts.JointSource, name)
			left := state()
			held()
			one, alone := hear(scripts.ReleaseSource, name)
			switch {
			case len(waiting) == 0:
				check.ErrorIf(t, answer != "-2" || said != " +0" || left != before,
					"of %q, which a client hears of, many say %s %q and leave %s", name, answer, said, left)
				check.ErrorIf(t, one != "1" || alone != " +0", "one says %s %q", one, alone)
			default:
				check.ErrorIf(t, answer != "-2" || said != "" || left != before,
					"with %v waiting for %q many says %s %q and leaves %s", waiting, name, answer, said, left)
				want := ":to:a rpa:1"
				if len(waiting) > 1 {
					want += ":to:b n1000:pb:2"
				}
				check.ErrorIf(t, one != "1" || alone != want, "with %v waiting for %q one says %s %q, want 1 %q", waiting,
					name, one, alone, want)
				check.Equal(t, "a release leaves %s", state(), fmt.Sprintf("%v [mortise:reserved:pa:1 -]", waiting[1:]))
			}
		}
	}
}
