package redisproto

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/wire"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/leader"
	"github.com/mortise-go/mortise/once"
	"github.com/mortise-go/mortise/semaphore"
)

// FuzzReplies has a server answer scripts with whatever it likes, and publish what it likes,
// while a client takes locks of all kinds: nothing panics, no call outlives its own time, none asks
// again without end, and every error is one that docs/reference/problems.md knows.
//
// A server that is Redis cannot answer most of it. Something between may, and the values that
// a real one finds at hostile keys come through here too; test/fuzz tries those.
func FuzzReplies(f *testing.F) {
	for op := range byte(len(calls)) {
		f.Add([]byte{}, []byte{op, op})
		f.Add([]byte{3, 0, 0, 3, 0, 1}, []byte{op, 0, 1})
		f.Add([]byte{12, 0, 8, 12, 0, 7, 12, 0, 9}, []byte{op, op, op})
		f.Add([]byte{2, 2, 2, 2, 1, 1, 1, 1}, []byte{op, op})
		f.Add([]byte{130, 1, 130, 2, 130, 3, 130, 4}, []byte{op, op})
	}
	// Waits in turn, and is told of another's, with less than nobody behind it.
	f.Add([]byte("\x00\xc7\x00\x00\xc7\x00\x00\x00\x00\x00\x00\x00\x00\x00-\x00\x001"), []byte{2})
	f.Fuzz(func(t *testing.T, replies, program []byte) {
		synctest.Test(t, func(t *testing.T) { answerWith(t, replies, program) })
	})
}

// answerWith runs in a bubble: time is nobody's but its own, and who hangs is found.
func answerWith(t *testing.T, replies, program []byte) {
	h := newHostile(replies)
	client := check.Value(mortise.New(New(func() (Adapter, error) { return h, nil }))).In(t)
	defer client.Close()
	u := &user{client: client, server: h}
	if len(program) > 8 {
		program = program[:8]
	}
	for _, op := range program {
		c := calls[int(op)%len(calls)]
		began, asked := time.Now(), h.tape.asked()
		ctx, cancel := context.WithTimeout(t.Context(), callTime)
		err := c.call(ctx, u, op)
		cancel()
		took := time.Since(began)
		check.FatalIf(t, took > callTime, "%s took %v", c.name, took)
		n := h.tape.asked() - asked
		check.FatalIf(t, n > mostAsked, "%s sent %d commands in %v", c.name, n, time.Since(began))
		check.FatalIf(t, err != nil && !known(err), "%s: an error of no kind: %v", c.name, err)
	}
}

const (
	callTime = 100 * time.Millisecond
	// mostAsked is how many commands a call may send in its time: it asks again after a millisecond at
	// the least, and what runs in the background does so too.
	mostAsked = 250
)

func known(err error) bool {
	for _, is := range []error{mortise.ErrNotAcquired, semaphore.ErrNotHeld, mortise.ErrLost, mortise.ErrReleased,
		mortise.ErrClosed,
		mortise.ErrUnavailable, mortise.ErrWrongKind, mortise.ErrInvalidName, mortise.ErrInvalid,
		context.DeadlineExceeded} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// user is a client, and the leases that it has.
type user struct {
	client *mortise.Client
	server *fakeAdapter
	leases []*mortise.Lease
}

func (u *user) lock(ctx context.Context, l mortise.Locker, opts ...mortise.Option) error {
	lease, err := l.Lock(ctx, "n", opts...)
	if err != nil {
		return err
	}
	if lease == nil {
		return errors.New("neither a lease nor an error")
	}
	u.leases = append(u.leases, lease)
	return nil
}

func (u *user) kind(ctx context.Context, k ...mortise.Option) error {
	l := u.client.With(k...)
	return u.lock(ctx, l)
}

// state checks what Inspect says.
func state(s mortise.LockInfo, err error) error {
	if err == nil && (s.Remaining < -1 || s.Holds < 0 || s.Remaining > maxLeft) {
		return fmt.Errorf("a state that cannot be: %+v", s)
	}
	return err
}

// maxLeft is more than any lock is held for; what is longer is without an end.
const maxLeft = wire.LongestTime

var calls = []struct {
	name string
	call func(ctx context.Context, u *user, op byte) error
}{
	{"Lock", func(ctx context.Context, u *user, _ byte) error { return u.lock(ctx, u.client) }},
	{"Lock with a lease", func(ctx context.Context, u *user, _ byte) error {
		return u.lock(ctx, u.client, mortise.WithLease(time.Second), mortise.WithWait(callTime/2))
	}},
	{"Lock while the server publishes", func(ctx context.Context, u *user, _ byte) error {
		failed := make(chan error, 1)
		go func() { failed <- u.lock(ctx, u.client) }()
		for i := range 8 {
			time.Sleep(callTime / 16)
			u.server.publish(channelOf("n"), u.server.tape.payload(i))
		}
		return <-failed
	}},
	{"Lock again", func(ctx context.Context, u *user, _ byte) error {
		if len(u.leases) > 0 {
			ctx = context.WithoutCancel(u.leases[len(u.leases)-1].Context())
		}
		return u.lock(ctx, u.client, mortise.WithWait(callTime/2))
	}},
	{"Unlock", func(ctx context.Context, u *user, _ byte) error {
		n := len(u.leases)
		if n == 0 {
			return nil
		}
		last := u.leases[n-1]
		u.leases = u.leases[:n-1]
		return last.Unlock(ctx)
	}},
	{"TryLock", func(ctx context.Context, u *user, _ byte) error {
		_, err := u.client.TryLock(ctx, "n")
		return err
	}},
	{"Fenced", func(ctx context.Context, u *user, _ byte) error { return u.kind(ctx, mortise.Fenced()) }},
	{"Fair", func(ctx context.Context, u *user, _ byte) error { return u.kind(ctx, mortise.Fair()) }},
	{"Polling", func(ctx context.Context, u *user, _ byte) error {
		return u.kind(ctx, mortise.Polling(time.Millisecond))
	}},
	{"read", func(ctx context.Context, u *user, _ byte) error { read := u.client.RW().Read; return u.lock(ctx, read) }},
	{"write", func(ctx context.Context, u *user, _ byte) error {
		write := u.client.RW().Write
		return u.lock(ctx, write)
	}},
	{"LockAll", func(ctx context.Context, u *user, _ byte) error {
		l, err := u.client.LockAll(ctx, []string{"a", "b"})
		if err == nil {
			u.leases = append(u.leases, l)
		}
		return err
	}},
	{"Inspect", func(ctx context.Context, u *user, _ byte) error { return state(u.client.Inspect(ctx, "n")) }},
	{"ForceUnlock", func(ctx context.Context, u *user, _ byte) error {
		_, err := u.client.ForceUnlock(ctx, "n", "")
		return err
	}},
	{"a counting semaphore", func(ctx context.Context, u *user, op byte) error {
		s := semaphore.NewCounting(u.client, "s")
		_, err := s.TrySetPermits(ctx, int(op))
		_, err2 := s.Available(ctx)
		return errors.Join(err, err2, s.Acquire(ctx, 1+int(op), mortise.WithWait(callTime/2)))
	}},
	{"a drained counting semaphore", func(ctx context.Context, u *user, op byte) error {
		s := semaphore.NewCounting(u.client, "s")
		_, err := s.Drain(ctx)
		return errors.Join(err, s.AddPermits(ctx, -1-int(op)), s.Release(ctx, 1+int(op)), s.TryAcquire(ctx, 1))
	}},
	{"a semaphore", func(ctx context.Context, u *user, op byte) error {
		p := semaphore.New(u.client, "p", 0)
		_, err := p.TrySetPermits(ctx, int(op))
		_, err2 := p.Available(ctx)
		got, err3 := p.Acquire(ctx, 1)
		if err3 == nil {
			err3 = got.Release(ctx)
		}
		return errors.Join(err, err2, err3, p.AddPermits(ctx, 1+int(op)),
			p.Release(ctx, "00112233445566778899aabbccddeeff"))
	}},
	{"a latch", func(ctx context.Context, u *user, op byte) error {
		l := latch.New(u.client, "l")
		_, err := l.TrySet(ctx, 1+int64(op))
		_, err2 := l.Count(ctx)
		err3 := l.CountDown(ctx)
		err4 := l.Wait(ctx, mortise.WithWait(callTime/4))
		_, err5 := l.Delete(ctx)
		return errors.Join(err, err2, err3, err4, err5)
	}},
	{"a schedule", func(ctx context.Context, u *user, op byte) error {
		tick, err := once.TryTick(ctx, u.client, "n", once.TickRequest{ID: "1", Interval: time.Second, CatchUp: int(op)})
		if err == nil && (tick.Next < 0 || tick.Next > maxLeft) {
			return fmt.Errorf("a tick that cannot be: %+v", tick)
		}
		return err
	}},
	{"what the owner says", func(ctx context.Context, u *user, _ byte) error {
		if n := len(u.leases); n > 0 {
			err := leader.Proclaim(ctx, u.leases[n-1], "here")
			if err != nil && !errors.Is(err, mortise.ErrInvalid) {
				return err
			}
		}
		seen := 0
		for _, err := range leader.Observe(ctx, u.client, "n") {
			if seen++; seen == 3 || err != nil {
				return err
			}
		}
		return nil
	}},
	{"an invalidation", func(_ context.Context, u *user, op byte) error {
		if op%2 == 0 {
			u.server.invalidate(nil)
		} else {
			u.server.invalidate([]string{"n", "", "s"})
		}
		return nil
	}},
}

// newHostile is a server that answers what is on its tape.
func newHostile(said []byte) *fakeAdapter {
	h := &fakeAdapter{features: Features{Tracking: len(said)%2 == 1}}
	h.tape = &tape{rest: said, loose: said}
	return h
}

// tape has the replies to scripts, and when it is over grants all.
type tape struct {
	mu    sync.Mutex
	rest  []byte
	count int
	loose []byte // payloads are made of it
}

func (h *tape) asked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// next is called with the mutex.
func (h *tape) next() byte {
	if len(h.rest) == 0 {
		return 0
	}
	b := h.rest[0]
	h.rest = h.rest[1:]
	return b
}

var (
	numbers = []int64{0, 1, -1, 2, 3, -2, -3, math.MaxInt64, maxMillis, maxMillis + 1, 9223372036854, 9223372036855,
		math.MinInt64, 30000, 1 << 53, math.MaxInt32}
	texts = []string{"", "0", "1", "-1", "mode", "read", "write", "x:1", "x:1:write", "9223372036854",
		"9223372036854775807", "-9223372036854775808",
		"99999999999999999999", "1e300", "nan", "inf", " 1", "0x7f", "\x00\xff"}
	failures = []error{
		serverError("WRONGTYPE Operation against a key holding the wrong kind of value script: f, on @user_script:1."),
		serverError("WRONGKIND the key holds a read-write lock"), serverError("OOM command not allowed"),
		serverError("READONLY"), serverError(""),
		serverError("ERR value is not an integer or out of range script: f, on @user_script:1."),
		serverError("NOPERM"), serverError("ERR Error running script (call to f_): @user_script:"),
		errors.New("garbage"), context.Canceled, context.DeadlineExceeded,
	}
)

// value is called with the mutex.
func (h *tape) value() int64 {
	b := h.next()
	if int(b) < len(numbers) {
		return numbers[b]
	}
	if b < 200 {
		return int64(b)
	}
	var raw [8]byte
	for i := range raw {
		raw[i] = h.next()
	}
	return int64(binary.BigEndian.Uint64(raw[:]))
}

// answer counts a command and is called with the mutex; b is what the tape has for the reply's form.
func (h *tape) answer() (b byte, err error) {
	h.count++
	if b = h.next(); b >= 128 {
		return b, failures[int(b)%len(failures)]
	}
	return b, nil
}

func (h *tape) number() (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := h.answer(); err != nil {
		return 0, err
	}
	return h.value(), nil
}

func (h *tape) numbers(script string) ([]int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, err := h.answer()
	if err != nil {
		return nil, err
	}
	n := 2
	if script == "fair_acquire" {
		n = 3
	}
	if b%8 == 7 {
		n = int(b / 8)
	}
	out := make([]int64, n)
	for i := range out {
		out[i] = h.value()
	}
	return out, nil
}

func (h *tape) words() ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, err := h.answer()
	if err != nil {
		return nil, err
	}
	out := []string{fmt.Sprint(h.value())}
	for range b % 16 {
		out = append(out, texts[int(h.next())%len(texts)])
	}
	return out[min(int(b/64), 1):], nil
}

// payload is what is published the i-th time.
func (h *tape) payload(i int) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i%2 == 0 && len(h.loose) > 0 { // of a turn's length, and almost one
		turn := []byte("123456700000000003")
		for j, b := range h.loose {
			if at := (i + j) % len(turn); b != 0 {
				turn[at] = b
			}
		}
		return string(turn)
	}
	return string(h.loose[min(i, len(h.loose)):])
}
