//go:build unix

package redisproto_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// A read-write lock's hash says how many keys a holder has, and scripts look at each.
func TestAHoldCountThatIsDamagedDoesNotStopTheServer(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		do(t, srv, "CONFIG", "SET", "lua-time-limit", "60000") // or BUSY would tell
		s := rwOf(t, b)
		in := backend.Topic{Kind: backend.KindWrite, Name: "n"}
		machine := redistest.Timed(t)
		for _, count := range []string{"1e15", "inf", "9223372036854775807", "0x7fffffffffff"} {
			quick := func(what string, do func()) {
				t.Helper()
				began := time.Now()
				do()
				machine.Within(t, what+" with a hold count of "+count, time.Since(began), 3*time.Second)
			}
			damage := func(mode string) { do(t, srv, "HSET", "n", "mode", mode, "somebody:1", count) }
			side(t, s, backend.KindRead, "n", "a:1")
			damage("read")
			quick("Inspect", func() {
				r, err := s.Inspect(t.Context(), in)
				check.ErrorIf(t, err != nil || !r.Held, "Inspect: %+v, %v", r, err)
			})
			quick("a reader's release", func() { unside(t, s, backend.KindRead, "n", "a:1") })
			side(t, s, backend.KindWrite, "n", "a:2")
			damage("write")
			quick("a writer's release", func() { unside(t, s, backend.KindWrite, "n", "a:2") })
			damage("read")
			quick("ForceRelease", func() {
				was, err := s.ForceRelease(t.Context(), in)
				check.ErrorIf(t, err != nil || !was, "ForceRelease: %v, %v", was, err)
			})
		}
	})
}

// 292 years are the longest that a time.Duration can say; added to a clock they are over.
func TestARecordThatEndsInCenturiesHasNoEnd(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, _ := session(t, b)
		for _, kind := range []backend.Kind{backend.KindLock, backend.KindWrite, backend.KindFair} {
			do(t, srv, "DEL", "n")
			do(t, srv, "HSET", "n", "somebody:1", "1")
			if kind == backend.KindWrite {
				do(t, srv, "HSET", "n", "mode", "write")
			}
			for _, ms := range []string{"9223372036854", "9000000000000000", "3153700000000"} {
				do(t, srv, "PEXPIRE", "n", ms)
				r, err := s.Acquire(t.Context(), anykind.AcquireRequest{Kind: kind, Name: "n", Owner: "a:1",
					Lease: time.Minute})
				check.ErrorIf(t, err != nil || r.Granted || r.Remaining >= 0,
					"kind %d, which ends in %s ms: %+v, %v; want it refused, without an end", kind, ms, r, err)
			}
		}
	})
}

// Lua writes numbers from 1e17 on with an exponent, which PEXPIRE does not read.
func TestARecordThatEndsInMillenniaIsWaitedFor(t *testing.T) {
	const millennia = "180000000000000000"
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		w := waits(t, b, "n", "w:1")
		do(t, srv, "HSET", "n", javaID+"1", "1")
		do(t, srv, "PEXPIRE", "n", millennia)
		r := w.enrol(t, 1)
		check.ErrorIf(t, r.Granted || !r.Enrolled || r.Remaining >= 0, "%+v; want it refused, with a place", r)
		f := ask(t, w.Store, "n", "w:2", fairWait)
		check.ErrorIf(t, f.Granted || !f.Joined || f.Remaining >= 0, "%+v; want it refused, with a place", f)

		do(t, srv, "SET", "permits", "1")
		do(t, srv, "PEXPIRE", "permits", millennia)
		p, err := w.Capabilities().Semaphores.Acquire(t.Context(), backend.PermitRequest{
			Name: "permits", Owner: strings.Repeat("a", 40), Lease: time.Minute})
		check.ErrorIf(t, err != nil || !p.Granted, "%+v, %v", p, err)
	})
}

// Each hold count may be one that a lock can have, and all of them together may not: a release or a look
// that asked for each key would stop the server for all clients.
func TestAScriptLooksForABoundedNumberOfHoldsInAll(t *testing.T) {
	check.Long(t)
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s := rwOf(t, b)
		in := backend.Topic{Kind: backend.KindWrite, Name: "n"}
		const fields, most = 100, 10_000
		hostile := func(mode, count string) {
			record := []string{"HSET", "n", "mode", mode}
			for i := range fields {
				record = append(record, fmt.Sprintf("somebody:%d", i), count)
			}
			do(t, srv, record...)
		}
		looks := func(what string, act func()) {
			t.Helper()
			do(t, srv, "CONFIG", "RESETSTAT")
			act()
			n := 0
			for _, command := range []string{"pttl", "exists", "del"} {
				n += ran(t, srv, command)
			}
			// A reader that leaves more than 64 others looks at 16 of them before.
			check.ErrorIf(t, n > most+16+10, "%s looked for %d keys, want at most %d", what, n, most+16)
		}
		lives := func(what string) {
			t.Helper()
			pttl(t, srv, "n", 50*time.Second, time.Minute)
			do(t, srv, "DEL", "n")
		}
		for _, count := range []string{"10000", "nan", "-1e300"} {
			// A first field that is no number does not lift the bound for those after it.
			first := func(mode string) { hostile(mode, "10000"); do(t, srv, "HSET", "n", "somebody:0", count) }

			side(t, s, backend.KindRead, "n", "a:1")
			first("read")
			looks("a reader's release", func() { unside(t, s, backend.KindRead, "n", "a:1") })
			lives("a reader's release")

			side(t, s, backend.KindWrite, "n", "a:2")
			first("write")
			looks("a writer's release", func() { unside(t, s, backend.KindWrite, "n", "a:2") })
			lives("a writer's release")

			side(t, s, backend.KindRead, "n", "a:3")
			first("read")
			looks("Inspect", func() {
				r, err := s.Inspect(t.Context(), in)
				check.ErrorIf(t, err != nil || !r.Held || r.Remaining < 50*time.Second, "Inspect: %+v, %v", r, err)
			})
			looks("ForceRelease", func() {
				was, err := s.ForceRelease(t.Context(), in)
				check.ErrorIf(t, err != nil || !was, "ForceRelease: %v, %v", was, err)
			})
			equal(t, "a lock that was released by force", do(t, srv, "EXISTS", "n"), 0)
		}
	})
}

// More readers than a script looks at are a lock all the same: it is not cut short.
func TestALockOfMoreReadersThanAScriptLooksAtKeepsTheLongerTime(t *testing.T) {
	check.Long(t)
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s := rwOf(t, b)
		in := backend.Topic{Kind: backend.KindWrite, Name: "n"}
		for _, k := range []backend.Kind{backend.KindRead, backend.KindWrite} {
			side(t, s, k, "n", "a:1")
			record := []string{"HSET", "n"}
			for i := range 10_001 {
				record = append(record, fmt.Sprintf("b:%d", i), "1")
			}
			do(t, srv, record...)
			do(t, srv, "SET", "{n}:b:10000:rwlock_timeout:1", "1", "PX", "59000")
			unside(t, s, k, "n", "a:1")
			pttl(t, srv, "n", 50*time.Second, time.Minute)
			r := side(t, s, backend.KindWrite, "n", "a:2")
			check.ErrorIf(t, r.Granted, "a writer was let in beside a reader")
			if r, err := s.Inspect(t.Context(), in); err != nil || !r.Held || r.Kind != backend.KindRead {
				t.Errorf("Inspect: %+v, %v", r, err)
			}
			do(t, srv, "FLUSHALL")
		}
	})
}

// ran is how often the server has run a command, those in scripts included.
func ran(t *testing.T, srv *redistest.Server, command string) int {
	t.Helper()
	for line := range strings.Lines(fmt.Sprint(do(t, srv, "INFO", "commandstats"))) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
			n, _, _ := strings.Cut(rest, ",")
			count := check.Value(strconv.Atoi(n)).In(t)
			return count
		}
	}
	return 0
}

// Places of very many clients, none of which listens: a release, a leaver and a question for a free lock each
// pass through the queue once, not once for each client.
func TestAQueueOfManyDeadClientsDoesNotStopTheServer(t *testing.T) {
	over(t, func(t *testing.T, srv *redistest.Server, s anykind.Store, _ *ears) {
		const dead = 4000
		for what, act := range map[string]func(){
			"a release": func() { free(t, s, "n", "me:1") },
			"a leaver": func() {
				r, err := s.Capabilities().Fair.Leave(t.Context(), backend.LeaveRequest{Name: "n", Owner: "me:1", Wait: fairWait})
				check.ErrorIf(t, err != nil || !r.Held, "%+v, %v", r, err)
			},
			"a question": func() { do(t, srv, "DEL", "n"); ask(t, s, "n", "other:1", fairWait) },
		} {
			do(t, srv, "FLUSHALL")
			ask(t, s, "n", "me:1", fairWait)
			queue, times := []string{"RPUSH", "redisson_lock_queue:{n}"}, []string{"ZADD", "redisson_lock_timeout:{n}"}
			for i := range dead {
				field := fmt.Sprintf("dead%d:1", i)
				queue, times = append(queue, field), append(times, "4102444800000", field)
			}
			do(t, srv, queue...)
			do(t, srv, times...)
			do(t, srv, "CONFIG", "RESETSTAT")
			before := spent(t, srv)
			act()
			took := spent(t, srv) - before
			// Each place is read, told and written a bounded number of times.
			n := 0
			for _, command := range []string{"lindex", "zscore", "zadd", "publish", "pubsub|numsub"} {
				n += ran(t, srv, command)
			}
			check.ErrorIf(t, n > 6*dead, "%s made %d calls for %d places", what, n, dead)
			check.ErrorIf(t, took > time.Second/4, "%s kept the server busy for %v", what, took)
		}
	})
}

// spent is the processor time that the server has used: on a busy machine a command takes longer, and no more of that.
func spent(t *testing.T, srv *redistest.Server) (d time.Duration) {
	t.Helper()
	for line := range strings.Lines(fmt.Sprint(do(t, srv, "INFO", "cpu"))) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if key == "used_cpu_user_main_thread" || key == "used_cpu_sys_main_thread" {
			d += time.Duration(check.Value(strconv.ParseFloat(value, 64)).In(t) * float64(time.Second))
		}
	}
	check.FatalIf(t, d == 0, "INFO has no processor time of the server")
	return d
}

// A queue of very many places that do not listen, whether their time is over or not: a script tells a bounded number
// of them, and the waiters that live come to their turn by asking.
func TestAFairLocksScriptTellsABoundedNumberOfPlaces(t *testing.T) {
	check.Long(t)
	over(t, func(t *testing.T, srv *redistest.Server, s anykind.Store, _ *ears) {
		const dead, most = 20_000, 2 * 4096
		for what, ends := range map[string]time.Duration{"kept": time.Hour, "over": -time.Hour} {
			do(t, srv, "FLUSHALL")
			ask(t, s, "n", "a:1", fairWait)
			queue, times := []string{"RPUSH", queueOfN}, []string{"ZADD", timesOfN}
			at := strconv.FormatInt(time.Now().Add(ends).UnixMilli(), 10)
			for i := range dead {
				owner := fmt.Sprintf("dead%d:1", i)
				queue, times = append(queue, owner), append(times, at, owner)
			}
			do(t, srv, queue...)
			do(t, srv, times...)
			told := func(by string, act func()) {
				do(t, srv, "CONFIG", "RESETSTAT")
				act()
				n := ran(t, srv, "publish") + ran(t, srv, "pubsub|numsub")
				check.ErrorIf(t, n > most, "%s, places that are %s: it told %d, want at most %d", by, what, n, most)
			}
			told("a release", func() { free(t, s, "n", "a:1") })
			for granted, end := false, time.Now().Add(30*time.Second); !granted; {
				check.FatalIf(t, time.Now().After(end), "places that are %s: a waiter behind them is refused for 30 s", what)
				told("an ask", func() {
					r := ask(t, s, "n", "a:2", fairWait)
					if granted = r.Granted; !granted {
						time.Sleep(r.AskAfter)
					}
				})
			}
		}
	})
}

// A count at the end of what a server counts cannot be added to: a release says so before it takes a permit from those
// that are out, and so does an acquisition that would put back what has ended.
func TestACountThatIsDamagedCostsNoPermit(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, _ := session(t, b)
		can := s.Capabilities().Semaphores
		owner := func(n int) string { return fmt.Sprintf("%032x,%032x", n, n+1) }
		take := func(n int, lease time.Duration) error {
			_, err := can.Acquire(t.Context(), backend.PermitRequest{Name: "n", Owner: owner(n), Lease: lease, Limit: 4})
			return err
		}
		check.NoError(t, take(1, time.Minute))
		check.NoError(t, take(3, time.Millisecond))
		out := func() string { return fmt.Sprint(do(t, srv, "ZCARD", "{n}:timeout")) }
		for _, count := range []string{"9223372036854775807", "-9223372036854775808", "999999999999999999", "007", "-0"} {
			do(t, srv, "SET", "n", count)
			_, err := can.Release(t.Context(), backend.ReleaseRequest{Name: "n", Owner: owner(1)})
			check.ErrorIf(t, !errors.Is(err, backend.ErrWrongKind) || out() != "4",
				"a release at %s: %v, %s are out", count, err, out())
			err = take(5, time.Minute)
			check.ErrorIf(t, !errors.Is(err, backend.ErrWrongKind) || out() != "4",
				"an acquire at %s: %v, %s are out", count, err, out())
			_, err = can.InspectPermits(t.Context(), "n", 10)
			check.Is(t, "InspectPermits", err, backend.ErrWrongKind)
		}
		// A count that is too low, or a set that is too large, is refused and not granted twice.
		do(t, srv, "SET", "n", "-5")
		r, err := can.Acquire(t.Context(), backend.PermitRequest{Name: "n", Owner: owner(7), Lease: time.Minute})
		check.ErrorIf(t, err != nil || r.Granted, "two of a negative count: %+v, %v", r, err)
	})
}

// A renewal of 16 owners of 128 permits each keeps the server from others for as long as one of 256 owners.
func TestARenewalOfManyPermitsIsSplit(t *testing.T) {
	check.Long(t)
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, _ := session(t, b)
		can := s.Capabilities().Semaphores
		in := make([]backend.RenewRequest, 16)
		for i := range in {
			ids := make([]string, backend.MaxPermits)
			for k := range ids {
				ids[k] = fmt.Sprintf("%032x", i*len(ids)+k)
			}
			in[i] = backend.RenewRequest{Name: "n", Owner: strings.Join(ids, ","), Lease: time.Minute}
			check.Value(can.Acquire(t.Context(), backend.PermitRequest{
				Name: "n", Owner: in[i].Owner, Lease: time.Minute, Limit: 16 * backend.MaxPermits, Declare: true,
			})).In(t)
		}
		do(t, srv, "CONFIG", "RESETSTAT")
		out := make([]backend.RenewResult, len(in))
		can.Renew(t.Context(), in, out)
		for i, r := range out {
			check.ErrorIf(t, r.Err != nil || !r.Held, "owner %d: %+v", i, r)
		}
		n, all := ran(t, srv, "evalsha")+ran(t, srv, "eval"), ran(t, srv, "zscore")
		check.ErrorIf(t, n < 8 || n > 9 || all != 16*backend.MaxPermits,
			"%d scripts checked %d permits, want 8 and 2048", n, all)
	})
}

// A script that fails has changed nothing, and remembers nothing: the request is carried out once the key is mended.
func TestAChangeOfADamagedCountThatFailsIsNotRemembered(t *testing.T) {
	check.Long(t)
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, _ := session(t, b)
		can := s.Capabilities()
		ctx, counting, latches, expiring := t.Context(), can.CountingSemaphores, can.CountDownLatches, can.Semaphores
		changes := map[string]func(backend.CountRequest) error{
			"AddCount":            func(r backend.CountRequest) error { return second(counting.AddCount(ctx, r)) },
			"TakeCount":           func(r backend.CountRequest) error { return second(counting.TakeCount(ctx, r)) },
			"DrainCount":          func(r backend.CountRequest) error { return second(counting.DrainCount(ctx, r)) },
			"CountDown":           func(r backend.CountRequest) error { return second(latches.CountDown(ctx, r)) },
			"SetLimit":            func(r backend.CountRequest) error { return second(expiring.SetLimit(ctx, r)) },
			"AddCount of permits": func(r backend.CountRequest) error { return second(expiring.AddCount(ctx, r)) },
		}
		kinds := map[string]backend.Kind{"CountDown": backend.KindCountDownLatch, "SetLimit": backend.KindSemaphore,
			"AddCount of permits": backend.KindSemaphore}
		damage := [][]string{{"SET", "n", "9223372036854775807"}, {"SET", "n", "-9223372036854775808"},
			{"SET", "n", "99999999999999999999"}, {"SET", "n", "007"}, {"SET", "n", "-0"}, {"SET", "{n}:timeout", "no zset"}}
		for what, change := range changes {
			kind, other := kinds[what]
			if !other {
				kind = backend.KindCountingSemaphore
			}
			failed := 0
			for i, bad := range damage {
				do(t, srv, "FLUSHALL")
				do(t, srv, bad...)
				r := backend.CountRequest{Topic: backend.Topic{Kind: kind, Name: "n"}, ID: fmt.Sprint("c:", i), N: 1}
				before := do(t, srv, "DBSIZE")
				if err := change(r); err == nil {
					continue
				}
				failed++
				keys := do(t, srv, "DBSIZE")
				check.ErrorIf(t, keys != before, "%s after %v failed, and left %v keys, of %v", what, bad, keys, before)
			}
			check.ErrorIf(t, failed == 0, "%s: nothing failed", what)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// From 2^53 on, a script cannot tell a number from the next: no call draws a token there, or locks without one.
func TestATokenThatCouldComeTwiceIsNotDrawn(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, _ := session(t, b)
		lock := backend.AcquireRequest{Name: "n", Owner: "o:1", Lease: time.Minute, Fenced: true}
		calls := map[string]func() (int64, error){
			"Acquire": func() (int64, error) {
				r, err := s.Store.Acquire(t.Context(), lock)
				return r.Token, err
			},
			"Enrol": func() (int64, error) {
				r, err := s.Capabilities().Queue.Enrol(t.Context(), backend.EnrolRequest{AcquireRequest: lock, Entry: 1})
				return r.Token, err
			},
			"fair": func() (int64, error) {
				r, err := s.Acquire(t.Context(), anykind.AcquireRequest{Kind: backend.KindFair, Name: "n", Owner: "o:1",
					Lease: time.Minute, Fenced: true})
				return r.Token, err
			},
			"AcquireAll": func() (int64, error) {
				r, err := s.Capabilities().Batch.AcquireAll(t.Context(), []backend.AcquireRequest{lock})
				if err != nil {
					return 0, err
				}
				return r[0].Token, nil
			},
		}
		for what, call := range calls {
			do(t, srv, "FLUSHALL")
			do(t, srv, "SET", "redisson_lock_token:{n}", strconv.Itoa(1<<53-2))
			last, err := call()
			check.ErrorIf(t, err != nil || last != 1<<53-1, "%s: token %d, %v; want the last one", what, last, err)
			do(t, srv, "DEL", "n")
			for range 2 {
				token, err := call()
				check.ErrorIf(t, !errors.Is(err, backend.ErrWrongKind), "%s: token %d, %v", what, token, err)
			}
			check.Equal(t, what+": %v records", do(t, srv, "EXISTS", "n"), any(int64(0)))
		}
	})
}
