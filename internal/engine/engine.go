// Package engine keeps the locks of one client of a store. Package mortise is its public API, and package backend is
// its port to the store.
//
// A call waits in the local queue of its name, and the first waiter there sends requests to the store: the call's
// attempt. A grant becomes a tenure, one owner's time in one record, with one or more holds. The tenure ends by a
// release, or is lost. The handler receives what the session with the store reports: releases and other changes.
//
// One mutex, state.mu, guards the state of a client. The engine sends no command and runs no user code with the mutex
// held. Functions note effects instead (ends of contexts, calls into the session, events), and state.unlock carries
// them out.
//
// The files:
//   - calls: call.go, request.go, try.go (without waiting), wait.go (in the local queue), acquire.go (the attempt)
//   - other calls: reenter.go, delegate.go, fair.go, batch.go (for LockAll), counting.go (for package counters)
//   - commands: dispatch.go (which command), pending.go (callers that leave), limits.go (how many at once)
//   - tenures: tenure.go, renew.go, repair.go (hold counts), release.go, handoff.go, proclaim.go
//   - requests of unknown outcome, and other repetitions in the background: compensate.go
//   - messages from the store: handler.go, watch.go
//   - state: names.go (by name), effects.go (the mutex), calls.go and shutdown.go
//   - the rest: name.go, id.go and defaults.go (checks), observer.go and site.go (events, log), probe.go (for tests)
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

// Config is the configuration of a client.
type Config struct {
	ID string // unique in the store; "": New draws an id
	// Watchdog is the watchdog timeout: the lease of tenures that the watchdog renews.
	Watchdog time.Duration
	// RejoinDelay is how long a store that lost its data has no vote in a quorum; negative for Watchdog.
	RejoinDelay time.Duration
	// RejoinScope selects the store's record of its age: backend.Age.Scope.
	RejoinScope string
	// Prefix is put before all names: FullName.
	Prefix string
	// Defaults has the options of requests that were not given them: WithDefaults; nil: none.
	Defaults *Request
	// HoldWarning is how long a hold lasts before the log warns of it; 0: never.
	HoldWarning time.Duration
	// Name is the client's name for observers and in the log; "": no name.
	Name     string
	Observer Observer
	Log      *slog.Logger
}

// Engine keeps the locks of one client. Its methods may be called concurrently.
type Engine struct {
	clock.Clock
	Config Config
	number uint32 // unique in the process: it is part of the keys that find holds in contexts
	store  store
	limits limits
	ids    ids
	state
	sender
	names   names
	renewer renewer
	// lastFailure is the last failure of a request to acquire: see Unanswered.
	lastFailure atomic.Pointer[failure]
}

// engines is the number of engines that this process has made.
var engines atomic.Uint32

// New returns the engine of a client, with a session of the backend.
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

// Number returns the engine's number in this process: the Client of the keys of its leases.
func (e *Engine) Number() uint32 { return e.number }

// ids draws the ids of owners and requests, and the numbers of holds and of proclaimed texts.
type ids struct {
	client string
	prefix string // of owner ids
	first  uint64 // owner ids are numbered from first+1; random if the client's id was given
	owners atomic.Uint64
	leases atomic.Uint64
	texts  atomic.Int64
}

func (i *ids) begin(client string) {
	if i.client = client; client == "" {
		i.client = newID()
	} else {
		// A client with the same id may have run before, and may have crashed. The store may still have its owners and
		// remember its requests, so the numbers must be others.
		i.first = rand.Uint64() >> 12
	}
	i.prefix = ownerPrefix(i.client)
}

// OwnerID draws an id for an owner or a request. It is never used again.
func (e *Engine) OwnerID() string {
	var b [20]byte
	return e.ids.prefix + string(strconv.AppendUint(b[:0], e.ids.first+e.ids.owners.Add(1), 10))
}

// Ping checks that the store answers.
func (e *Engine) Ping(ctx context.Context) error {
	if err := e.Usable(); err != nil {
		return fail.New("ping", "", err)
	}
	if ctx == nil {
		ctx = context.Background()
	}
	ping := func() error { return e.asking().Do(ctx, func() error { return e.store.Ping(e.base) }) }
	if err := e.Await(ctx, ping, nil); err != nil {
		return fail.New("ping", "", e.Explain(err))
	}
	return nil
}

// Usable returns an error for an engine that is nil, or was not made by New.
func (e *Engine) Usable() error {
	if e == nil || e.store.Store == nil {
		return fail.Zero
	}
	return nil
}

// node returns the number of the store's node that has a name; 0 if there is only one node, or the node is unknown.
func (s *store) node(name string) int {
	if s.can.Partitions == nil {
		return 0
	}
	return s.can.Partitions.Partition(name)
}

// leaves reports whether callers can leave the commands of a kind: backend.Leaver.
func (s *store) leaves(k backend.Kind) bool { return s.can.Leaver != nil && s.can.Leaver.Leaves(k) }

// Capabilities returns the optional interfaces of the store.
func (e *Engine) Capabilities() *backend.Capabilities { return &e.store.can }

// Can returns an error if the store lacks a capability (has is false), or the engine is not usable. Errors name the
// capability by things.
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

// Watchdog returns the watchdog timeout.
func (e *Engine) Watchdog() time.Duration { return e.Config.Watchdog }

// RejoinDelay returns how long the store has no vote in a quorum after it lost its data; zero: it votes at once.
func (e *Engine) RejoinDelay() time.Duration {
	if e.Config.RejoinDelay < 0 {
		return e.Config.Watchdog
	}
	return e.Config.RejoinDelay
}

// KnowsAge reports whether the store knows its age (backend.AgeStore), and returns the scope of the record.
func (e *Engine) KnowsAge() (scope string, knows bool) {
	s := e.store.can.Age
	return e.Config.RejoinScope, s != nil && s.KnowsAge()
}
