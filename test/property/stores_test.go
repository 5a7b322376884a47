package property

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
)

const (
	// soon bounds everything that is awaited: an invalidation, a release message.
	soon = 10 * time.Second
	// tolerance is how far the remaining times of two stores may be apart. Each
	// sequence of operations is over in much less, and the leases that are drawn
	// are further apart.
	tolerance = 5 * time.Second
)

// store is one of those that are compared.
type store struct {
	backend.Backend
	label string
	// prefix keeps the names of stores that share a server apart.
	prefix string
	// remove deletes the record of a name as an operator would.
	remove func(name string)
	// occupy puts data under a name that is no lock: "string", "list", or "rwlock".
	occupy func(name, what string)
	// tells: a holder hears by itself that its record was removed by another.
	tells bool
	// lags: a refusal may be outdated by the length of a message's trip.
	lags bool

	mu       sync.Mutex
	handlers []backend.Handler
}

// Open notes who listens, for hint.
func (s *store) Open(h backend.Handler) (backend.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers = append(s.handlers, h)
	return s.Backend.Open(h)
}

// hint tells all clients that a record was changed, as stores do that can. With a
// store that cannot, a holder would notice at its next renewal only, which is
// right but cannot be compared.
func (s *store) hint(name string) { s.hintOf(backend.KindLock, name) }

func (s *store) hintOf(kind backend.Kind, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.handlers {
		h.Changed(backend.Topic{Kind: kind, Name: s.prefix + name})
	}
}

// key is a name as this store has it.
func (s *store) key(name string) string { return s.prefix + name }

// openStores makes the stores anew; those on Redis share one server with all tests.
// The first is the model.
func openStores(t testing.TB) []*store {
	t.Helper()
	m := memory.New()
	model := &store{
		Backend: m, label: "memory", tells: true,
		remove: m.Delete,
		occupy: func(name, _ string) { m.Occupy(name) },
	}

	server := sharedServer()
	rdb := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	t.Cleanup(func() { rdb.Close() })
	plain := &store{Backend: redisgo.New(rdb), label: "go-redis", prefix: "g:"}
	cached := &store{
		Backend: rueidis.New(rueidisclient.ClientOption{InitAddress: []string{server.Addr()}}),
		label:   "rueidis", prefix: "r:", tells: true, lags: true,
	}
	uncached := &store{
		Backend: rueidis.New(rueidisclient.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true}),
		label:   "rueidis, no cache", prefix: "u:",
	}
	for _, s := range []*store{plain, cached, uncached} {
		s.remove = func(name string) { do(t, server, "DEL", name) }
		s.occupy = func(name, what string) {
			do(t, server, "DEL", name)
			switch what {
			case "string":
				do(t, server, "SET", name, "1")
			case "list":
				do(t, server, "RPUSH", name, "1")
			case "rwlock":
				do(t, server, "HSET", name, "mode", "write", "uuid:1:write", "1")
			}
		}
	}
	return []*store{model, plain, cached, uncached}
}

func do(t testing.TB, s *redistest.Server, args ...string) {
	if _, err := s.Do(args...); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
}

// newClient opens a client that is closed with the test.
func newClient(t testing.TB, s *store, opts ...mortise.ClientOption) *mortise.Client {
	t.Helper()
	c, err := mortise.New(s, opts...)
	if err != nil {
		t.Fatalf("%s: %v", s.label, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.Shutdown(ctx)
	})
	return c
}

// await looks until ok says yes.
func await(t interface {
	Helper()
	Fatalf(string, ...any)
}, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", soon, what)
		}
		time.Sleep(time.Millisecond)
	}
}

var names atomic.Int64

// fresh is a part of names that no other test, and no other run of this one, uses.
func fresh() string { return fmt.Sprintf("%d-%d:", os.Getpid(), names.Add(1)) }

// sharedServer is one server for all tests of the binary, so that -count=200 does
// not start 200 of them. It ends in TestMain.
var sharedServer = sync.OnceValue(func() *redistest.Server { return redistest.Start(binary) })

// binary stands for the whole run of the test binary, as a [testing.TB].
var binary = &wholeRun{}

type wholeRun struct {
	testing.TB // nil: redistest uses no more than this
	atEnd      []func()
}

func (*wholeRun) Helper()                        {}
func (*wholeRun) Fatalf(format string, a ...any) { log.Panicf(format, a...) }
func (w *wholeRun) Cleanup(f func())             { w.atEnd = append(w.atEnd, f) }

func (w *wholeRun) TempDir() string {
	dir, err := os.MkdirTemp("", "property")
	if err != nil {
		log.Panic(err)
	}
	w.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// With rapid's own default of 100 sequences for each test the module would take minutes
// on a machine of two cores. What the command line says comes later, and wins.
const sequences = "40"

// Without -rapid.seed the same sequences are drawn each time: what is new is then in the
// change that is tested. -rapid.seed=0 draws others, which is what a long run is for.
const seed = "1"

func TestMain(m *testing.M) {
	// The flags of the command line come after these.
	for name, value := range map[string]string{"rapid.checks": sequences, "rapid.seed": seed} {
		if err := flag.Set(name, value); err != nil {
			log.Panic(err)
		}
	}
	code := m.Run()
	for i := len(binary.atEnd) - 1; i >= 0; i-- {
		binary.atEnd[i]()
	}
	os.Exit(code)
}

// verdict names what an error is, in the terms that callers can tell apart.
func verdict(err error) string {
	if err == nil {
		return "ok"
	}
	is := ""
	for _, s := range []struct {
		name string
		err  error
	}{
		{"NotAcquired", mortise.ErrNotAcquired}, {"NotHeld", mortise.ErrNotHeld}, {"Lost", mortise.ErrLost},
		{"Released", mortise.ErrReleased}, {"Closed", mortise.ErrClosed}, {"Unavailable", mortise.ErrUnavailable},
		{"WrongKind", mortise.ErrWrongKind}, {"BadName", mortise.ErrBadName}, {"Invalid", mortise.ErrInvalid},
		{"backend.WrongKind", backend.ErrWrongKind}, {"backend.SessionClosed", backend.ErrSessionClosed},
		{"Canceled", context.Canceled}, {"DeadlineExceeded", context.DeadlineExceeded},
	} {
		if errors.Is(err, s.err) {
			is += s.name + " "
		}
	}
	if is == "" {
		return "an error of no known kind: " + err.Error()
	}
	return is[:len(is)-1]
}

// alike tells whether two remaining times agree.
func alike(a, b time.Duration) bool {
	if a < 0 || b < 0 {
		return a < 0 && b < 0
	}
	return (a - b).Abs() <= tolerance
}
