package property

import (
	"flag"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/test/internal/harness"
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

// Open notes the handler, for hint.
func (s *store) Open(h backend.Handler) (backend.Store, error) {
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
	at, uncachedAt := harness.At(server.Addr()), harness.At(server.Addr())
	uncachedAt.NoCache = true
	plain := &store{Backend: at.Backend(t, harness.GoRedis), label: "go-redis", prefix: "g:"}
	cached := &store{Backend: at.Backend(t, harness.Rueidis), label: "rueidis", prefix: "r:", tells: true, lags: true}
	uncached := &store{Backend: uncachedAt.Backend(t, harness.Rueidis), label: "rueidis, no cache", prefix: "u:"}
	for _, s := range []*store{plain, cached, uncached} {
		s.remove = func(name string) { server.Must("DEL", name) }
		s.occupy = func(name, what string) {
			server.Must("DEL", name)
			switch what {
			case "string":
				server.Must("SET", name, "1")
			case "list":
				server.Must("RPUSH", name, "1")
			case "rwlock":
				server.Must("HSET", name, "mode", "write", "uuid:1:write", "1")
			}
		}
	}
	return []*store{model, plain, cached, uncached}
}

// newClient opens a client that is closed with the test.
func newClient(t testing.TB, s *store, opts ...mortise.ClientOption) *mortise.Client {
	t.Helper()
	return harness.Client(t, s, opts...)
}

// await looks until ok says yes.
func await(t harness.T, what string, ok func() bool) {
	t.Helper()
	harness.Await(t, soon, what, ok)
}

// hearing is a Handler that counts, by topic, what it is told.
type hearing struct {
	mu       sync.Mutex
	watching map[backend.Topic]int
	released map[backend.Topic]int
}

func (e *hearing) Watching(t backend.Topic) { e.note(e.watching, t) }
func (e *hearing) Released(t backend.Topic) { e.note(e.released, t) }
func (e *hearing) Changed(backend.Topic)    {}
func (e *hearing) ChangedAll()              {}

func (e *hearing) note(m map[backend.Topic]int, t backend.Topic) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m[t]++
}

func (e *hearing) count(m map[backend.Topic]int, t backend.Topic) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return m[t]
}

// of is what was heard of a name, by topic without it.
func (e *hearing) of(m map[backend.Topic]int, name string) map[backend.Topic]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	some := map[backend.Topic]int{}
	for t, n := range m {
		if t.Name == name {
			some[backend.Topic{Kind: t.Kind, Owner: t.Owner}] = n
		}
	}
	return some
}

const sessions = 2

// opened is a store with its sessions, and what each of them hears.
type opened struct {
	*store
	ears [sessions]*hearing
	port [sessions]anykind.Store
}

func openPorts(t *testing.T) (all []*opened) {
	for _, s := range openStores(t) {
		o := &opened{store: s}
		for i := range sessions {
			o.ears[i] = &hearing{watching: map[backend.Topic]int{}, released: map[backend.Topic]int{}}
			x := harness.Must(s.Open(o.ears[i]))(t)
			t.Cleanup(func() { x.Close() })
			o.port[i] = anykind.Store{Store: x}
		}
		all = append(all, o)
	}
	return all
}

// again repeats an operation at a store that lags until it is done, for a while.
func (s *store) again(done func() bool) {
	for end := time.Now().Add(soon); !done() && s.lags && time.Now().Before(end); {
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
var binary = new(harness.WholeRun)

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
	binary.End()
	if testing.Verbose() {
		fmt.Printf("%d random steps, which each of the stores was asked for\n", steps.Load())
	}
	os.Exit(code)
}

// steps is the number of random steps of all tests.
var steps atomic.Int64

// repeat draws actions, and counts those that were not skipped.
func repeat(t *rapid.T, actions map[string]func(*rapid.T)) {
	counting := make(map[string]func(*rapid.T), len(actions))
	for name, act := range actions {
		counting[name] = act
		if name != "" { // otherwise it checks what holds after each
			counting[name] = func(t *rapid.T) {
				act(t)
				steps.Add(1)
			}
		}
	}
	t.Repeat(counting)
}

// verdict names what an error is, in the terms that callers can tell apart.
func verdict(err error) string {
	if is := harness.ErrorNames(err); is != "" {
		return is
	}
	return "an error of no known kind: " + err.Error()
}

// alike tells whether two remaining times agree.
func alike(a, b time.Duration) bool {
	if a < 0 || b < 0 {
		return a < 0 && b < 0
	}
	return (a - b).Abs() <= tolerance
}
