// Package engine acquires, waits, renews, re-enters and releases: it owns the state of locks of one client, and the
// mutex that guards it.
//
// A call goes call.go (where it begins), wait.go (the local queue), acquire.go (its question to the store, and what
// becomes of it), tenure.go (what is held), renew.go, repair.go and compensate.go (the background), release.go.
package engine

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/announce"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
)

// Config is what a client was made with.
type Config struct {
	ID string // unique in the store; "" draws one
	// Watchdog is the lease of tenures that are renewed.
	Watchdog time.Duration
	// RejoinDelay is for how long a store that lost its data has no vote in a quorum; negative for Watchdog.
	RejoinDelay time.Duration
	// RejoinScope names the store's record of its age.
	RejoinScope string
	// Prefix is what all names begin with in the store.
	Prefix string
	// Wait and MaxHold are those of requests that say none; 0: none.
	Wait, MaxHold time.Duration
	// HoldWarning is how long a hold lasts before the log says so; 0: never.
	HoldWarning time.Duration
	// Name is what observers and the log call the client; "": nothing.
	Name     string
	Observer Observer
	Log      *slog.Logger
}

// Engine is the locks of one client. Its methods may be called concurrently.
type Engine struct {
	clock.Clock
	Config Config
	number uint32 // of the engines of this process: what holds in contexts are found by
	store  store
	limits limits
	ids    ids
	state
	sender
	names   names
	renewer renewer
}

// engines numbers those of this process.
var engines atomic.Uint32

// New makes the engine of a client on a backend.
func New(b backend.Backend, cfg Config) (*Engine, error) {
	e := &Engine{Clock: clock.New(), Config: cfg, limits: newLimits(), number: engines.Add(1)}
	e.names = newNames(e)
	if cfg.Log != nil && cfg.Name != "" {
		cfg.Log = cfg.Log.With("client", cfg.Name)
	}
	e.state.announce = announce.New(cfg.Log)
	e.ids.begin(cfg.ID)
	e.Config.ID = e.ids.client
	e.sender = newSender(&e.state)
	e.calls.init()
	e.renewer.init(e)
	session, err := b.Open(e.Handler())
	if err != nil {
		e.cancel()
		return nil, fmt.Errorf("%w: %w", fail.Invalid, err)
	}
	e.store = newStore(session)
	return e, nil
}

// Number is the engine's among those of this process: the Client of its leases' keys.
func (e *Engine) Number() uint32 { return e.number }

// ids draws the client's ids.
type ids struct {
	client string
	prefix string // of owners
	first  uint64 // what owners are numbered from, another for each client
	owners atomic.Uint64
	leases atomic.Uint64
}

func (i *ids) begin(client string) {
	if i.client = client; client == "" {
		i.client = newID()
	} else {
		// A client with the same id that ran before, and perhaps crashed, has left owners and remembered requests
		// in the store: begin elsewhere.
		i.first = rand.Uint64() >> 12
	}
	i.prefix = i.client + ":"
}

// OwnerID draws an id that is never used again, of an owner or of a request.
func (e *Engine) OwnerID() string {
	var b [20]byte
	return e.ids.prefix + string(strconv.AppendUint(b[:0], e.ids.first+e.ids.owners.Add(1), 10))
}

// Ping asks the store for a sign of life.
func (e *Engine) Ping(ctx context.Context) error {
	if err := e.Usable(); err != nil {
		return fail.New("ping", "", err)
	}
	if ctx == nil {
		ctx = context.Background()
	}
	if err := e.Await(ctx, func() error { return e.store.Ping(e.base) }, nil); err != nil {
		return fail.New("ping", "", e.Explain(err))
	}
	return nil
}

// Usable refuses an engine that New did not make.
func (e *Engine) Usable() error {
	if e == nil || e.store.Store == nil {
		return fail.Zero
	}
	return nil
}

// node numbers the node of the store that has a name; 0 where there is one only, or it is not known.
func (s *store) node(name string) int {
	if s.can.Partitions == nil {
		return 0
	}
	return s.can.Partitions.Partition(name)
}

// leaves reports whether the store lets callers leave commands for a kind.
func (s *store) leaves(k backend.Kind) bool { return s.can.Leaver != nil && s.can.Leaver.Leaves(k) }

// Capabilities is what the store can do besides.
func (e *Engine) Capabilities() *backend.Capabilities { return &e.store.can }

// Can refuses what the store cannot do: things is what it would have, in errors.
func (e *Engine) Can(has bool, things string) error {
	if err := e.Usable(); err != nil {
		return err
	}
	if !has {
		return fail.Invalidf("the backend (%T) has no %s; those of redisgo, rueidis and memory have",
			e.store.Store, things)
	}
	return nil
}

// Watchdog is the lease of tenures that are renewed.
func (e *Engine) Watchdog() time.Duration { return e.Config.Watchdog }

// RejoinDelay is for how long the store has no vote in a quorum after it lost its data; zero if it votes at once.
func (e *Engine) RejoinDelay() time.Duration {
	if e.Config.RejoinDelay < 0 {
		return e.Config.Watchdog
	}
	return e.Config.RejoinDelay
}

// KnowsAge reports whether the store can tell since when it has its data, and in which scope.
func (e *Engine) KnowsAge() (scope string, knows bool) {
	s := e.store.can.Age
	return e.Config.RejoinScope, s != nil && s.KnowsAge()
}
