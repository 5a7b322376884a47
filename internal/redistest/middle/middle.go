//go:build unix

// Package middle is what the tests of the middlewares share: a Redis with a client of it, locks in
// memory, and entries of delegations that are accepted and refused.
package middle

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
)

// Patience bounds everything that a test waits for.
const Patience = 20 * time.Second

// Order is the lock that the tests' requests want.
const Order = "orders:42"

// Site is a Redis and a client of it.
type Site struct {
	*testing.T
	Redis *redistest.Server
	Locks *mortise.Client
}

// NewSite starts a Redis, until the end of the test.
func NewSite(t *testing.T, opts ...redistest.Option) *Site {
	s := &Site{T: t, Redis: redistest.Start(t, opts...)}
	s.Locks = s.Client()
	return s
}

// Client is one more client of the Redis.
func (s *Site) Client(opts ...mortise.ClientOption) *mortise.Client {
	s.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: s.Redis.Addr()})
	s.Cleanup(func() { rdb.Close() })
	return client(s, redisgo.New(rdb), opts)
}

// Hold takes [Order] by another client. release gives it back.
func (s *Site) Hold() (release func()) {
	s.Helper()
	lease := check.Value(s.Client().Lock(s.Context(), Order)).In(s)
	return func() { check.Done(s, lease.Unlock(context.Background())) }
}

// Free waits until the Redis has no lock of that name.
func (s *Site) Free(name string) {
	s.Helper()
	s.Until(name+" is free in Redis", func() bool {
		n, err := s.Redis.Do("EXISTS", name)
		return err == nil && n == int64(0)
	})
}

// Until waits until ok.
func (s *Site) Until(what string, ok func() bool) {
	s.Helper()
	for end := time.Now().Add(Patience); !ok(); time.Sleep(2 * time.Millisecond) {
		check.FatalIf(s, time.Now().After(end), "not within %v: %s", Patience, what)
	}
}

// Receive is what comes from c.
func Receive[T any](t testing.TB, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(Patience):
		t.Fatalf("not within %v: %s", Patience, what)
	}
	return v
}

// Async calls f in a goroutine, and sends what it returns.
func Async[T any](f func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return c
}

// TillEnded signals in, and sends why ctx ended; nil if it did not.
func TillEnded(ctx context.Context, in chan<- struct{}, causes chan<- error) {
	in <- struct{}{}
	select {
	case <-ctx.Done():
		causes <- context.Cause(ctx)
	case <-time.After(Patience):
		causes <- nil
	}
}

// Inside counts callers that are at work at once.
type Inside struct {
	mu        sync.Mutex
	now, most int
}

// Work is a millisecond of work, in which another caller may be let in wrongly.
func (i *Inside) Work() {
	add := func(n int) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.now += n
		i.most = max(i.most, i.now)
	}
	add(1)
	time.Sleep(time.Millisecond)
	add(-1)
}

// Alone fails the test if two worked at once.
func (i *Inside) Alone(t testing.TB) {
	t.Helper()
	check.ErrorIf(t, i.most != 1, "%d at once", i.most)
}

// Panic fails the test for each of calls that does not panic with a text that begins with prefix.
func Panic(t *testing.T, prefix string, calls map[string]func()) {
	for what, call := range calls {
		t.Run(what, func(t *testing.T) {
			defer func() {
				p, _ := recover().(string)
				check.ErrorIf(t, !strings.HasPrefix(p, prefix), "panicked with %q", p)
			}()
			call()
		})
	}
}

// InMemory is a client of locks in memory, until the end of the test.
func InMemory(t testing.TB, store *memory.Store, opts ...mortise.ClientOption) *mortise.Client {
	t.Helper()
	return client(t, store, opts)
}

// Holding is a lock, until the end of the test.
func Holding(t testing.TB, locks mortise.Locker, name string, opts ...mortise.Option) *mortise.Lease {
	t.Helper()
	l := check.Value(locks.Lock(context.Background(), name, opts...)).In(t)
	t.Cleanup(func() { l.Unlock(context.Background()) })
	return l
}

// Key is the signing key of an id.
func Key(id string) delegation.Key {
	return delegation.NewKey(id, []byte(id+": thirty-two bytes and more, of a test"))
}

// Ring is a ring of one key.
func Ring(t testing.TB, id string) *delegation.Ring {
	t.Helper()
	return check.Value(delegation.NewRing(Key(id))).In(t)
}

// Issuer is an issuer with a signer.
func Issuer(t testing.TB, s delegation.Signer, opts ...delegation.Option) *delegation.Issuer {
	t.Helper()
	return check.Value(delegation.NewIssuer(s, opts...)).In(t)
}

// Checker is a checker of what an audience is told.
func Checker(t testing.TB, v delegation.Verifier, audience string, opts ...delegation.Option) *delegation.Checker {
	t.Helper()
	return check.Value(delegation.NewChecker(v, audience, opts...)).In(t)
}

// Entry is one of [Order] that the audience accepts, unless change makes it another.
func Entry(t testing.TB, s delegation.Signer, audience string, change func(*delegation.Entry)) string {
	t.Helper()
	p := delegation.Entry{Audience: audience, Issued: time.Now(), Expires: time.Now().Add(20 * time.Second),
		Delegations: []delegation.Delegation{{Name: Order, Owner: "w/1/x:1", Hold: 1}}}
	if change != nil {
		change(&p)
	}
	return check.Value(p.Sign(context.Background(), s)).In(t)
}

// Refusal is what a service refuses.
type Refusal struct {
	Name      string
	Entries   []string
	Malformed bool // it is no entry; otherwise it is one that does not count
	Want      error
}

// Refusals are those of a service that is called audience and has a ring with the key k1.
func Refusals(t testing.TB, ring *delegation.Ring, audience string) []Refusal {
	t.Helper()
	good := Entry(t, ring, audience, nil)
	changed := func(change func(*delegation.Entry)) []string { return []string{Entry(t, ring, audience, change)} }
	moved := func(from, to time.Duration) []string {
		return changed(func(p *delegation.Entry) { p.Issued, p.Expires = p.Issued.Add(from), p.Issued.Add(to) })
	}
	secret := []byte("a secret that the attacker made up, long enough")
	impostor := check.Value(delegation.NewRing(delegation.NewKey("k1", secret))).In(t)
	return []Refusal{
		{"tampered", []string{Entry(t, impostor, audience, nil)}, false, delegation.ErrTampered},
		{"unknown key", []string{Entry(t, Ring(t, "k2"), audience, nil)}, false, delegation.ErrUnknownKey},
		{"wrong audience", changed(func(p *delegation.Entry) { p.Audience = "billing" }), false,
			delegation.ErrWrongAudience},
		{"expired", moved(-time.Minute, -10*time.Second), false, delegation.ErrExpired},
		{"not yet valid", moved(time.Minute, 2*time.Minute), false, delegation.ErrNotYetValid},
		{"for too long", moved(0, time.Hour), false, delegation.ErrLifetime},
		{"oversize", []string{good + strings.Repeat("A", delegation.MaxEntry)}, true, delegation.ErrOversize},
		{"duplicated", []string{good, good}, true, delegation.ErrDuplicated},
		{"duplicated, joined by a proxy", []string{good + ", " + good}, true, delegation.ErrDuplicated},
		{"malformed", []string{good[:40]}, true, delegation.ErrMalformed},
		{"of another version", []string{"m9" + good[2:]}, true, delegation.ErrVersion},
		{"empty", []string{""}, true, delegation.ErrVersion},
	}
}

// Away is a key service that does not answer.
type Away struct{}

var errAway = errors.New("the key service is away")

// Current is a key's id.
func (Away) Current() string { return "k1" }

// Sign fails.
func (Away) Sign(context.Context, string, []byte) ([]byte, error) { return nil, errAway }

// Verify fails.
func (Away) Verify(context.Context, string, []byte, []byte) error { return errAway }

// Cannot returns a client whose backend cannot enter another client's lock.
func Cannot(t testing.TB) *mortise.Client { return client(t, without{memory.New()}, nil) }

type without struct{ *memory.Store }

func (b without) Open(h backend.Handler) (backend.Store, error) {
	s, err := b.Store.Open(h)
	return withoutDelegations{s}, err
}

type withoutDelegations struct{ backend.Store }

func (s withoutDelegations) Capabilities() backend.Capabilities {
	c := s.Store.Capabilities()
	c.Delegation = nil
	return c
}

func client(t testing.TB, b backend.Backend, opts []mortise.ClientOption) *mortise.Client {
	t.Helper()
	c := check.Value(mortise.New(b, opts...)).In(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// Stale is a client whose cache says that [Order] is held. The lock is free in the Redis: the invalidation is on its
// way for as long as the test runs.
func (s *Site) Stale() *mortise.Client {
	s.Helper()
	proxy := redistest.NewProxy(s, s.Redis.Addr())
	locks := client(s, rueidis.New(rueidisclient.ClientOption{InitAddress: []string{proxy.Addr()}}), nil)
	s.Redis.Must("HSET", Order, "java:1", "1")
	scripts := func() int { return proxy.Count(redistest.Named("EVALSHA", "EVAL")) }
	refused := func() bool {
		before := scripts()
		return errors.Is(check.Err(locks.TryLock(s.Context(), Order)), mortise.ErrNotAcquired) && scripts() == before
	}
	s.Until("a refusal without a command", refused)
	proxy.Hang(func(tracking bool) bool { return tracking })
	s.Redis.Must("DEL", Order)
	return locks
}
