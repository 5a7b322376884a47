//go:build unix

package fuzz

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/leader"
	"github.com/mortise-go/mortise/once"
	"github.com/mortise-go/mortise/semaphore"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// FuzzValues puts what no client of ours wrote at a name's keys, before and while two clients use it: values of
// other types, counts that are none, times to live from a millisecond to beyond what a clock can say.
// The tape says what, and which calls come between.
func FuzzValues(f *testing.F) {
	for key := range byte(len(nameKeys)) {
		for shape := range byte(len(shapes)) {
			// The damage, and then calls of each sort.
			f.Add(byte(shape%3), []byte{0, key, shape, key, shape, 1, 2, 3, 128, 129, 130, 132, 133, 134})
			f.Add(byte(key%3), []byte{128, 0, key, shape, 7, 1, 9, 9, 135, 136, 137, 138, 139, 140, 141, 142})
		}
	}
	for text := range byte(len(texts)) {
		f.Add(byte(1), []byte{0, 0, 9, text, 10, text, 0, 143, 144, 145, 146, 135, 136, 150})       // the counts of sides
		f.Add(byte(1), []byte{0, 10, 0, text, 151, 151, 0, 10, 13, text, 151})                      // ticks
		f.Add(byte(2), []byte{128, 152, 0, 11, 8, 5, text, 152, 0, 11, 10, 5, text, 152})           // proclamations
		f.Add(byte(2), []byte{0, 0, 0, text, 0, 137, 138, 139, 140, 141, 142})                      // the counts of counts
		f.Add(byte(1), []byte{0, 7, 6, text, 1, text, 0, 0, 4, 3, text, 3, text, 0, 130, 131, 147}) // queues
	}
	// The queue of a read-write lock has another type, so what a writer waits for is not removed with its entry.
	f.Add(byte(1), []byte{0, 11, 0, 1, 135, 136})
	f.Add(byte(1), []byte{0, 11, 0, 1, 135, 136, 135})
	for field := range byte(7) {
		for score := range byte(len(scores)) {
			// The state of windows, and entries that no client has, while a client waits.
			f.Add(byte(1), []byte{0, 8, 18, field, score, field, score, 128, 129, 0, 4, 3, 0, score, 1, 27, 130, 132, 133, 134})
		}
	}
	for ttl := range byte(len(ttls)) {
		f.Add(byte(1+ttl%2), []byte{0, 0, 8, 5, 1, ttl, 128, 133, 130, 129, 147})
		f.Add(byte(1+ttl%2), []byte{0, 0, 9, 5, 1, ttl, 135, 136, 143})
	}
	f.Fuzz(func(t *testing.T, store byte, script []byte) {
		w := theWorld()
		name := []string{"n", "{n}", "a{b}c"}[len(script)%3]
		d := &damage{t: t, w: w, store: stores[int(store)%len(stores)], name: name, tape: tape(script)}
		names := []string{name, name + "2"}
		around := decoys(names)
		w.reset(t, around)
		before := w.digests(t, around)
		w.scripts(t)

		d.run()

		n := w.scripts(t)
		harness.ErrorIf(t, n > mostSent, "%s: %d scripts were sent", d.store, n)
		for _, k := range w.unharmed(t, names, around, before) {
			harness.ErrorIf(t, strings.HasPrefix(k.name, "mortise:1:") && !k.expires && !d.damaged[k.name],
				"%s: %q does not expire", d.store, k.name)
			// A queue whose times are gone, or the reverse, mends itself within backend.Absence of its turn.
			broken := d.damaged["redisson_lock_queue:"+tagged(name)] || d.damaged["redisson_lock_timeout:"+tagged(name)]
			for _, field := range k.fields {
				if d.orderly && !(broken && strings.HasPrefix(k.name, "redisson_lock_")) && strings.HasPrefix(field, ours) {
					t.Errorf("%s: %q is left behind in %q", d.store, field, k.name)
				}
			}
		}
	})
}

const (
	ours = "fuzz/"
	// mostSteps and mostSent bound an input, and what it may send: a step waits for some milliseconds,
	// and asks again after one at the least.
	mostSteps = 12
	mostSent  = 300
)

// tape is what an input is read from; zeros follow it.
type tape []byte

func (p *tape) next() byte {
	if len(*p) == 0 {
		return 0
	}
	b := (*p)[0]
	*p = (*p)[1:]
	return b
}

// int is a small number, or one of eight bytes.
func (p *tape) int() int64 {
	b := p.next()
	if b < 250 {
		return int64(b)
	}
	var raw [8]byte
	for i := range raw {
		raw[i] = p.next()
	}
	return int64(binary.BigEndian.Uint64(raw[:]))
}

// text is one that means something to some script, or anything.
func (p *tape) text() string {
	b := p.next()
	if int(b) < len(texts) {
		return texts[b]
	}
	n := min(int(b)-len(texts), len(*p))
	s := string((*p)[:n])
	*p = (*p)[n:]
	return s
}

func (p *tape) score() string { return scores[int(p.next())%len(scores)] }

var (
	texts = []string{
		"", "0", "1", "-1", "2", "mode", "read", "write", "x", "uuid:1", "uuid:1:write",
		"9223372036854775807", "-9223372036854775808", "9223372036854775808", "99999999999999999999999999",
		"1e15", "1e300", "inf", "-inf", "nan", "0x10", " 1", "1 ", "1.5", "+1", "\x00", "\xff\xfe", "a:b:c", "2147483648",
		"00000000-0000-0000-0000-000000000000:1", "1700000000000:abc", "99999999999999:abc", "1234567", "0123456789abcdef",
	}
	scores = []string{
		"0", "-1", "1", "inf", "-inf", "1e300", "-1e300", "1.5", "1700000000000", "4000000000000",
		"922337203685477", "9223372036854775807", "99999999999999999999",
	}
	ttls = []string{
		"1", "2", "60000", "31536000000", "3153600000001", "9223370000000", "9223372036854", "9223372036855",
		"9000000000000000", "1000000000000000000", "0", "-1",
	}
)

// nameKeys are a name's keys.
var nameKeys = []func(name string) string{
	func(n string) string { return n },
	func(n string) string { return "redisson_lock_token:" + tagged(n) },
	func(n string) string { return "redisson_lock_queue:" + tagged(n) },
	func(n string) string { return "redisson_lock_timeout:" + tagged(n) },
	queueOf,
	func(n string) string { return companion("writer", n) },
	func(n string) string { return tagged(n) + ":timeout" },
	func(n string) string { return tagged(n) + ":uuid:1:rwlock_timeout:1" },
	func(n string) string { return queueOf(n) + ":round" },
	func(n string) string { return queueOf(n) + ":window" },
	func(n string) string { return queueOf(n) + ":extra" },
	func(n string) string { return companion("wake", n) },
	func(n string) string { return companion("wake", n) + ":round" },
	func(n string) string { return companion("tick", n) },
	func(n string) string { return companion("proclaim", n) },
	func(n string) string { return companion("wake", n) + ":wants" },
	func(n string) string { return queueOf(n) + ":asks" },
}

// shapes make a value.
var shapes = []func(p *tape, key string) [][]any{
	0: func(p *tape, key string) [][]any { return [][]any{{"set", key, p.text()}} },
	1: func(p *tape, key string) [][]any { return [][]any{{"del", key}} },
	2: func(p *tape, key string) [][]any { return [][]any{{"del", key}, {"rpush", key, p.text(), p.text()}} },
	3: func(p *tape, key string) [][]any {
		return [][]any{{"del", key}, {"zadd", key, p.score(), p.text(), p.score(), p.text()}}
	},
	4: func(p *tape, key string) [][]any { return [][]any{{"del", key}, {"sadd", key, p.text(), p.text()}} },
	5: func(p *tape, key string) [][]any {
		return [][]any{{"del", key}, {"xadd", key, "*", p.text(), p.text()}}
	},
	6: func(p *tape, key string) [][]any { // a queue with places of others
		a, b := p.text(), p.text()
		zset := strings.Replace(key, "redisson_lock_queue:", "redisson_lock_timeout:", 1)
		return [][]any{{"rpush", key, a, b, a}, {"zadd", zset, p.score(), a, p.score(), b}}
	},
	7: func(p *tape, key string) [][]any { return [][]any{{"pfadd", key, p.text()}} },
	8: func(p *tape, key string) [][]any { return [][]any{{"del", key}, {"hset", key, p.text(), p.text()}} },
	9: func(p *tape, key string) [][]any { // one side of a read-write lock, and a count
		mode := []string{"read", "write", "", "both"}[p.next()%4]
		return [][]any{{"hset", key, "mode", mode, p.text(), p.text(), "uuid:1", p.text()}}
	},
	10: func(p *tape, key string) [][]any { return [][]any{{"hset", key, p.text(), p.text()}} },
	11: func(p *tape, key string) [][]any { // many fields
		n := 100 << (p.next() % 4)
		all := []any{"hset", key}
		for i := range n {
			all = append(all, fmt.Sprint("x:", i), p.text())
		}
		return [][]any{all}
	},
	12: func(p *tape, key string) [][]any { // many places
		n := 50 << (p.next() % 3)
		list, zset := []any{"rpush", key}, []any{"zadd", key + "s"}
		for i := range n {
			list = append(list, fmt.Sprint("x:", i))
			zset = append(zset, p.score(), fmt.Sprint("x:", i))
		}
		zset[1] = strings.Replace(key, "redisson_lock_queue:", "redisson_lock_timeout:", 1)
		return [][]any{list, zset}
	},
	13: func(p *tape, key string) [][]any { return [][]any{{"pexpire", key, ttls[int(p.next())%len(ttls)]}} },
	14: func(p *tape, key string) [][]any { return [][]any{{"persist", key}} },
	15: func(p *tape, key string) [][]any { return [][]any{{"hincrby", key, p.text(), p.int()}} },
	16: func(p *tape, key string) [][]any { return [][]any{{"incrby", key, p.int()}} },
	17: func(p *tape, key string) [][]any { return [][]any{{"setrange", key, 70000, p.text()}} },
	18: func(p *tape, key string) [][]any { // the state of windows
		fields := []string{"window", "length", "misses", "pause", "seen", "due", "tenures", "releases", "owed"}
		return [][]any{{"hset", key, fields[int(p.next())%len(fields)], p.text(), fields[int(p.next())%len(fields)],
			p.score()}}
	},
	19: func(p *tape, key string) [][]any { // a record reserved for an entry that there may be
		return [][]any{{"del", key}, {"hset", key, "mortise:reserved:" + p.text(), "-"}}
	},
}

// damage is what happens to a name.
type damage struct {
	t       *testing.T
	w       *world
	store   string
	name    string
	tape    tape
	mem     *memory.Store
	damaged map[string]bool
	users   [2]*mortise.Client
	leases  []*mortise.Lease
	permits []*semaphore.Permit
	orderly bool // all that was had was given back
}

func (d *damage) run() {
	d.damaged = map[string]bool{}
	d.orderly = true
	b := d.w.backend(d.store)
	d.mem, _ = b.(*memory.Store)
	for i := range d.users {
		if d.store == byCached && i > 0 {
			b = d.w.backend(d.store)
		}
		c := harness.Must(mortise.New(b, mortise.WithID(ours+fmt.Sprint(i))))(d.t)
		d.users[i] = c
	}
	for range mostSteps {
		if len(d.tape) == 0 {
			break
		}
		if b := d.tape.next(); b < 128 {
			d.harm()
		} else {
			c := uses[int(b&127)%len(uses)]
			user := d.users[int(b>>6)&1^int(b)&1]
			err := c.call(d, user)
			v := verdict(err)
			harness.FatalIf(d.t, strings.HasPrefix(v, "?"), "%s: %s: an error of no kind: %v", d.store, c.name, err)
			if errors.Is(err, mortise.ErrUnavailable) {
				d.orderly = false
			}
		}
	}
	for _, l := range d.leases {
		d.gaveBack(does(d.t, "Unlock", time.Second, l.Unlock))
	}
	for _, p := range d.permits {
		d.gaveBack(does(d.t, "Release", time.Second, p.Release))
	}
	for _, c := range d.users {
		if !shutdown(d.t, c, 50*time.Millisecond) {
			d.orderly = false
		}
	}
}

func (d *damage) gaveBack(err error) {
	if err != nil && !errors.Is(err, mortise.ErrLost) && !errors.Is(err, semaphore.ErrNotHeld) {
		d.orderly = false
	}
}

// harm writes what no client of ours would.
func (d *damage) harm() {
	which := d.tape.next()
	key := nameKeys[int(which)%len(nameKeys)](d.name)
	if d.mem != nil {
		switch d.tape.next() % 4 {
		case 0:
			d.mem.Occupy(d.name)
		case 1:
			d.mem.Delete(d.name)
		case 2:
			d.mem.Flush()
		case 3:
			d.mem.SetDown(errors.New("down"))
			d.mem.SetDown(nil)
		}
		return
	}
	pipe := d.w.admin.Pipeline()
	for _, command := range shapes[int(d.tape.next())%len(shapes)](&d.tape, key) {
		pipe.Do(context.Background(), command...)
		d.damaged[command[1].(string)] = true
	}
	// What cannot be written there is an error, and no damage.
	_, err := pipe.Exec(context.Background())
	if reply := goredis.Error(nil); err != nil && !errors.As(err, &reply) {
		d.t.Fatal(err)
	}
}

const (
	patience = 6 * time.Millisecond // of a call that waits for a lock
	answer   = 5 * time.Second      // of a call that does not wait
)

func (d *damage) lock(l mortise.Locker, opts ...mortise.Option) error {
	lease, err := call(d.t, "Lock", patience, func(ctx context.Context) (*mortise.Lease, error) {
		return l.Lock(ctx, d.name, opts...)
	})
	if err == nil {
		d.leases = append(d.leases, lease)
	}
	return err
}

func (d *damage) try(l mortise.Locker, opts ...mortise.Option) error {
	lease, err := call(d.t, "TryLock", answer, func(ctx context.Context) (*mortise.Lease, error) {
		return l.TryLock(context.WithoutCancel(ctx), d.name, opts...)
	})
	if err == nil {
		d.leases = append(d.leases, lease)
	}
	return err
}

func (d *damage) kind(c *mortise.Client, k ...mortise.Option) error {
	l := c.With(k...)
	if d.tape.next()%2 == 0 {
		return d.lock(l)
	}
	return d.try(l)
}

func (d *damage) does(what string, f func(ctx context.Context) error) error {
	return does(d.t, what, answer, f)
}

func state(s mortise.LockInfo, err error) (mortise.LockInfo, error) {
	if err == nil && (s.Remaining < -1 || s.Remaining > 100*365*24*time.Hour || s.Holds < 0 || s.Readers < 0) {
		return s, fmt.Errorf("a state that cannot be: %+v", s)
	}
	return s, err
}

var uses = []struct {
	name string
	call func(d *damage, c *mortise.Client) error
}{
	{"TryLock", func(d *damage, c *mortise.Client) error { return d.try(c) }},
	{"Lock", func(d *damage, c *mortise.Client) error { return d.lock(c) }},
	{"fair", func(d *damage, c *mortise.Client) error { return d.kind(c, mortise.Fair()) }},
	{"fair and fenced", func(d *damage, c *mortise.Client) error { return d.kind(c, mortise.Fair(), mortise.Fenced()) }},
	{"fenced", func(d *damage, c *mortise.Client) error { return d.kind(c, mortise.Fenced()) }},
	{"Lock with a wait", func(d *damage, c *mortise.Client) error { return d.lock(c, mortise.WithWait(patience/2)) }},
	{"Unlock", func(d *damage, c *mortise.Client) error {
		if len(d.leases) == 0 {
			return nil
		}
		l := d.leases[0]
		d.leases = d.leases[1:]
		err := d.does("Unlock", l.Unlock)
		d.gaveBack(err)
		return err
	}},
	{"read", func(d *damage, c *mortise.Client) error { read := c.RW().Read; return d.lock(read) }},
	{"write", func(d *damage, c *mortise.Client) error { write := c.RW().Write; return d.lock(write) }},
	{"a counting semaphore", func(d *damage, c *mortise.Client) error {
		s := semaphore.NewCounting(c, d.name)
		return errors.Join(
			d.does("TrySetPermits", func(ctx context.Context) error { return harness.Err(s.TrySetPermits(ctx, 3)) }),
			d.does("TryAcquire", func(ctx context.Context) error { return s.TryAcquire(ctx, 2) }),
			d.does("Available", func(ctx context.Context) error { return harness.Err(s.Available(ctx)) }))
	}},
	{"a counting semaphore's Acquire", func(d *damage, c *mortise.Client) error {
		return does(d.t, "Acquire", patience, func(ctx context.Context) error {
			return semaphore.NewCounting(c, d.name).Acquire(ctx, 2)
		})
	}},
	{"a counting semaphore's size", func(d *damage, c *mortise.Client) error {
		s, n := semaphore.NewCounting(c, d.name), int(d.tape.int())
		return errors.Join(
			d.does("AddPermits", func(ctx context.Context) error { return s.AddPermits(ctx, n) }),
			d.does("Release", func(ctx context.Context) error { return s.Release(ctx, n) }),
			d.does("Drain", func(ctx context.Context) error { return harness.Err(s.Drain(ctx)) }))
	}},
	{"a semaphore", func(d *damage, c *mortise.Client) error {
		p := semaphore.New(c, d.name, 0)
		err := errors.Join(
			d.does("TrySetPermits", func(ctx context.Context) error { return harness.Err(p.TrySetPermits(ctx, 2)) }),
			d.does("Available", func(ctx context.Context) error { return harness.Err(p.Available(ctx)) }))
		got, err2 := call(d.t, "Acquire", patience, func(ctx context.Context) (*semaphore.Permit, error) {
			return p.Acquire(ctx, 1)
		})
		if err2 == nil {
			d.permits = append(d.permits, got)
		}
		return errors.Join(err, err2)
	}},
	{"a semaphore's size", func(d *damage, c *mortise.Client) error {
		p, n := semaphore.New(c, d.name, 0), int(d.tape.int())
		return errors.Join(
			d.does("AddPermits", func(ctx context.Context) error { return p.AddPermits(ctx, n) }),
			d.does("Release", func(ctx context.Context) error { return p.Release(ctx, "30313233343536373839616263646566") }))
	}},
	{"a latch", func(d *damage, c *mortise.Client) error {
		l, n := latch.New(c, d.name), d.tape.int()
		return errors.Join(
			d.does("TrySet", func(ctx context.Context) error { return harness.Err(l.TrySet(ctx, n)) }),
			d.does("CountDown", l.CountDown),
			d.does("Count", func(ctx context.Context) error { return harness.Err(l.Count(ctx)) }))
	}},
	{"a latch's Wait", func(d *damage, c *mortise.Client) error {
		err := does(d.t, "Wait", patience, func(ctx context.Context) error { return latch.New(c, d.name).Wait(ctx) })
		return errors.Join(err, d.does("Delete", func(ctx context.Context) error {
			return harness.Err(latch.New(c, d.name).Delete(ctx))
		}))
	}},
	{"Inspect", func(d *damage, c *mortise.Client) error {
		return d.does("Inspect", func(ctx context.Context) error { return harness.Err(state(c.Inspect(ctx, d.name))) })
	}},
	{"ForceUnlock", func(d *damage, c *mortise.Client) error {
		return d.does("ForceUnlock", func(ctx context.Context) error { return harness.Err(c.ForceUnlock(ctx, d.name, "")) })
	}},
	{"LockAll", func(d *damage, c *mortise.Client) error {
		l, err := call(d.t, "LockAll", patience, func(ctx context.Context) (*mortise.Lease, error) {
			return c.LockAll(ctx, []string{d.name, d.name + "2"})
		})
		if err == nil {
			d.leases = append(d.leases, l)
		}
		return err
	}},
	{"Lock again", func(d *damage, c *mortise.Client) error {
		if len(d.leases) == 0 {
			return nil
		}
		under := d.leases[len(d.leases)-1].Context()
		l, err := call(d.t, "Lock again", 2*patience, func(context.Context) (*mortise.Lease, error) {
			return c.Lock(under, d.name, mortise.WithWait(patience))
		})
		if err == nil {
			d.leases = append(d.leases, l)
		}
		return err
	}},
	{"read under it", func(d *damage, c *mortise.Client) error {
		if len(d.leases) == 0 {
			return nil
		}
		under := d.leases[len(d.leases)-1].Context()
		read := c.RW().Read
		l, err := call(d.t, "read under it", 2*patience, func(context.Context) (*mortise.Lease, error) {
			return read.Lock(under, d.name, mortise.WithWait(patience))
		})
		if err == nil {
			d.leases = append(d.leases, l)
		}
		return err
	}},
	{"a schedule", func(d *damage, c *mortise.Client) error {
		for _, interval := range []time.Duration{10 * time.Millisecond, time.Hour} {
			r := once.TickRequest{ID: fmt.Sprint(d.tape.next()), Interval: interval, CatchUp: int(d.tape.next())}
			tick, err := call(d.t, "ClaimTick", answer, func(ctx context.Context) (once.Tick, error) {
				return once.TryTick(ctx, c, d.name, r)
			})
			if err != nil {
				return err
			}
			// A claim may find another's tick of the same ID, of another interval.
			if tick.Next < 0 || tick.Claimed && (tick.At.After(time.Now().Add(time.Second)) || tick.Next > interval) {
				return fmt.Errorf("a tick that cannot be: %+v", tick)
			}
		}
		return nil
	}},
	{"what the owner says", func(d *damage, c *mortise.Client) error {
		if len(d.leases) > 0 {
			l := d.leases[len(d.leases)-1]
			err := d.does("Proclaim", func(ctx context.Context) error { return leader.Proclaim(ctx, l, "here") })
			if err != nil && !errors.Is(err, mortise.ErrInvalid) && !errors.Is(err, mortise.ErrLost) {
				return err
			}
		}
		return d.does("Proclamations", func(ctx context.Context) error {
			for p, err := range leader.Observe(ctx, c, d.name) {
				if len(p.Identity) > 256 {
					return fmt.Errorf("a text of %d bytes", len(p.Identity))
				}
				return err
			}
			return nil
		})
	}},
}
