package mortise

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/bridge"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// Client takes locks in a store. It implements [Locker] with the reentrant lock. A client is safe
// for concurrent use; a process needs one client for each store. The number of background goroutines
// does not grow with the locks held or waited for.
type Client struct {
	engine *engine.Engine
	misuse atomic.Pointer[error] // the first wrong options of With or RW, for Check
}

// ClientOption changes a client. The zero ClientOption does nothing.
type ClientOption struct{ set func(*engine.Config) error }

// WithID sets the client's id: the name of the client in the store's records. The id must be unique
// among all clients of the store, at all times: to clients with one id, [LockInfo.Mine] is true of
// each other's locks, and a waiting writer's claim stands for both. An id has 1 to 256 bytes of UTF-8
// without control characters. The default is "host/pid/random".
func WithID(id string) ClientOption {
	return ClientOption{func(c *engine.Config) error {
		if err := engine.CheckID("WithID", id); err != nil {
			return err
		}
		c.ID = id
		return nil
	}}
}

// WithWatchdogTimeout sets the lease of locks without [WithLease]. The watchdog renews them every
// third of d while the holder lives; after a crash they free themselves within d. d is at least a
// second; the default, as Redisson's, is 30 seconds.
func WithWatchdogTimeout(d time.Duration) ClientOption {
	return ClientOption{func(c *engine.Config) error {
		if d < time.Second || d > MaxLease {
			return fail.Invalidf("WithWatchdogTimeout(%v): between 1s and %v", d, MaxLease)
		}
		c.Watchdog = clock.CeilMilli(d)
		return nil
	}}
}

// WithObserver adds functions for the client's events; those of several observers are called in the order
// of the options. [Observer] says when, and by which goroutine, they are called.
func WithObserver(o Observer) ClientOption {
	return ClientOption{func(c *engine.Config) error { c.Observer = o.inner(c.Observer); return nil }}
}

// WithLogger sets the client's logger: for lost leases, failed renewals, long holds, long waits for a
// lock that the client itself holds, which may be deadlocks, schedules that stand still, and failed
// campaigns for leadership. Without the option the client is silent; for a nil logger New returns
// [ErrInvalid]. docs/reference/log-lines.md lists the lines.
//
// The logger is called by a goroutine of its own, from the queue that [Observer] describes, so a
// slow or blocked handler delays no lease. A line about many leases is logged once a second, with
// their number. A record's time is the time of the line, not of the event.
func WithLogger(l *slog.Logger) ClientOption {
	return ClientOption{func(c *engine.Config) error {
		if l == nil {
			return fail.Invalidf("WithLogger(nil); omit the option, and the client is silent")
		}
		c.Log = l
		return nil
	}}
}

// WithName names the client in events, metrics and log lines: [Event.Client], the attribute
// mortise.client of package telemetry, "client" in the log. The name tells apart the clients of a
// process; the processes of a fleet share the name. A name has 1 to 256 bytes of UTF-8 without
// control characters; otherwise New returns [ErrInvalid].
func WithName(name string) ClientOption {
	return ClientOption{func(c *engine.Config) error {
		if err := engine.CheckID("WithName", name); err != nil {
			return err
		}
		c.Name = name
		return nil
	}}
}

// WithPrefix puts a prefix before each name that the client uses in the store, for example "orders:":
// names of locks of all kinds, of [Client.LockAll] and quorum.New, of semaphores and latches, of ticks and
// proclamations, and names given to Inspect and ForceUnlock. The program passes names without the
// prefix. Errors, events, log lines, [Lease.Name], [LockInfo] and delegations have the full name, as in
// the store. Clients share no lock if neither prefix begins with the other; a schedule begins anew
// under another prefix.
//
// Redisson adds no prefix: to share a lock, Java uses the full name, or a NameMapper with the same
// prefix. Leave the option out if Java chooses the names.
//
// Prefix and name together follow the rules of [Locker] for names. A prefix in braces puts all
// names of the client on one slot of a cluster. For a prefix that is empty, longer than 256 bytes,
// or has braces that form no hash tag, New returns [ErrInvalid].
func WithPrefix(prefix string) ClientOption {
	return ClientOption{func(c *engine.Config) error {
		if err := engine.CheckID("WithPrefix", prefix); err != nil {
			return err
		}
		if err := engine.CheckName(prefix); err != nil {
			return fail.Invalidf("WithPrefix(%q): %v", prefix, err)
		}
		c.Prefix = prefix
		return nil
	}}
}

// WithDefaults sets options for all calls of the client that have no other: locks of all kinds, semaphores
// and latches. Each option applies to the calls that it is for: [WithWait] to calls that wait, [WithLease] and
// [WithMaxHold] to locks and semaphores, [WithReplicas] to locks, and [Fair], [Fenced], [NonReentrant] and
// [Polling] to the reentrant lock, but not to quorum.New. [Option] says which of two options counts. If an
// option is wrong, New returns [ErrInvalid].
//
// WithDefaults(WithMaxHold(d)) makes a lock whose Unlock was forgotten free after d, even if its process
// lives. The terms of a leader (leader.Run) are such leases, and end after d. Each Lock and each Unlock is
// then a command, because a lock with such a lease is not handed to the next waiter of the process without a
// command.
func WithDefaults(opts ...Option) ClientOption {
	return ClientOption{func(c *engine.Config) error {
		r, err := with(engine.Request{Name: "any"}, opts)
		if err != nil {
			return fail.Of(err).Err
		}
		if c.Defaults != nil {
			r = r.Over(c.Defaults)
		}
		c.Defaults = &r
		return nil
	}}
}

// WithHoldWarning sets how long a lock or a permit may be held before the client logs a warning, once,
// with the place of the Lock in the program: its Unlock may have been forgotten. The default is
// ten minutes; zero switches the warning off, and more than [MaxLease] counts as MaxLease. For
// a negative d New returns [ErrInvalid]. There is no warning without [WithLogger], and for a lease that
// has proclaimed a text (leader.Proclaim): leaders hold their locks for long by design.
//
// Cost: with a logger, Lock notes its caller's program counter: no command and no allocation.
func WithHoldWarning(d time.Duration) ClientOption {
	return ClientOption{func(c *engine.Config) error {
		if d < 0 {
			return fail.Invalidf("WithHoldWarning(%v): 0 switches it off", d)
		}
		c.HoldWarning = min(d, MaxLease)
		return nil
	}}
}

// New makes a client on a backend: redisgo.New(...), rueidis.New(...) or memory.New(). New does no
// I/O: if the store is unavailable, the first call fails; [Client.Ping] checks the store. Errors of
// New wrap [ErrInvalid].
func New(b backend.Backend, opts ...ClientOption) (*Client, error) {
	cfg := engine.Config{Watchdog: 30 * time.Second, RejoinDelay: -1, HoldWarning: 10 * time.Minute}
	var err error
	for _, o := range opts {
		if err == nil && o.set != nil {
			err = o.set(&cfg)
		}
	}
	c := new(Client)
	switch {
	case b == nil:
		err = fail.Invalidf("the backend is nil; pass redisgo.New(...), rueidis.New(...) or memory.New()")
	case err == nil:
		c.engine, err = engine.New(b, cfg)
	}
	if err != nil {
		return nil, fail.New("new", "", err)
	}
	return c, nil
}

// inner returns the client's engine; nil for a nil client.
func (c *Client) inner() *engine.Engine {
	if c == nil {
		return nil
	}
	return c.engine
}

// usable returns an error for a nil or zero client.
func (c *Client) usable() error { return c.inner().Usable() }

// The packages beside this one make semaphores, latches and quorums of clients.
func init() {
	bridge.Configure = func(set func(*engine.Config) error) ClientOption { return ClientOption{set} }
	bridge.Engine = (*Client).inner
	bridge.Request = with
	bridge.Lease = func(h *lease.Handle) *Lease { return (*Lease)(h) }
	bridge.Holding = (*Lease).held
	bridge.Delegations = engine.Delegations
	bridge.Delegate = func(ctx context.Context, c *Client, most int, d []lease.Delegation) (context.Context, error) {
		return c.inner().WithDelegations(ctx, most, d)
	}
}

// public converts a lease to the exported type.
func public(h *lease.Handle, err error) (*Lease, error) { return (*Lease)(h), err }

// ID is the client's id, the part before the last colon of an owner.
func (c *Client) ID() string {
	if c.usable() != nil {
		return ""
	}
	return c.engine.Config.ID
}

// Ping checks the connection to the store, three times at most. An error wraps [ErrUnavailable]. Cost:
// one command; a client's first Ping also loads the scripts, some 50 in a round trip to each server.
func (c *Client) Ping(ctx context.Context) error { return c.inner().Ping(ctx) }

// Finding is what [Client.Check] found about one subject.
type Finding struct {
	// Name is the subject, one word: "server", "role", "permissions", "channels", "eviction" or "clock".
	// Several findings may have one name: one for each kind of lock, or for some nodes of a cluster.
	Name string
	// State is one of these words:
	//
	//	ok       as it should be
	//	warning  locks work, but may be lost, wait longer, or fill the server's ACL LOG
	//	problem  some call certainly fails
	//	unknown  the client may not see it
	State string
	// Text says what was found.
	Text string
	// Remedy says what an operator can do; empty if State is ok.
	Remedy string
}

// Check checks the connection as [Client.Ping] does, and then what locks need of the store: on Redis the version, the
// role (a replica refuses writes), the user's permissions for each kind of lock, its channels, the eviction policy
// and the clock. Check changes nothing, and sends nothing that the server would write into ACL LOG: what the user may
// not see is a finding of the state unknown.
//
// Names are checked by the prefix of [WithPrefix]: the user of a client without a prefix who may use only some names
// is unknown. A kind of lock is no problem if the user has nothing that only this kind needs; it was not made for it.
//
// An error wraps [ErrUnavailable]: the store did not answer, and there are no findings; or a finding is a problem,
// and the error has its text and remedy. For a nil or zero client it wraps [ErrInvalid], and also if [Client.With] or
// [Client.RW] was given a wrong option; after Shutdown [ErrClosed].
// Check is safe for concurrent use. Cost: the commands of Ping, and two to each master, of which the second takes some
// 0.5 ms of the server.
func (c *Client) Check(ctx context.Context) ([]Finding, error) {
	if c.usable() == nil {
		if err := c.misuse.Load(); err != nil {
			return nil, fail.New("check", "", *err)
		}
	}
	found, err := engine.Check(ctx, c.inner())
	var all []Finding
	for _, f := range found {
		all = append(all, Finding(f))
	}
	return all, err
}

// Lock implements [Locker] with the reentrant lock.
func (c *Client) Lock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	r, err := c.with(engine.Request{Name: name}, opts)
	if err != nil {
		return nil, err
	}
	return public(c.inner().Acquire(ctx, ctx, r))
}

// TryLock implements [Locker] with the reentrant lock.
func (c *Client) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	r, err := c.with(engine.Request{Name: name, Try: true}, opts)
	if err != nil {
		return nil, err
	}
	return public(c.inner().Acquire(ctx, ctx, r))
}

// with adds the client's prefix, the options and the client's defaults to a request.
func (c *Client) with(r engine.Request, opts []Option) (engine.Request, error) {
	r.Name = engine.FullName(c.inner(), r.Name)
	r, err := with(r, opts)
	if err != nil {
		return r, err
	}
	return c.complete(r)
}

// complete adds the client's defaults to a request, and checks that the backend has such locks.
func (c *Client) complete(r engine.Request) (engine.Request, error) {
	r = engine.WithDefaults(c.inner(), r)
	if r.Family == backend.KindLock {
		return r, nil
	}
	if err := c.has(&r); err != nil {
		return r, r.Fail(err)
	}
	return r, nil
}

// Close is [Client.Shutdown] with a timeout of five seconds.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return c.Shutdown(ctx)
}

// Shutdown refuses new locks, ends waits with [ErrClosed], and waits for the Unlocks of held leases
// until ctx ends. Held leases are renewed meanwhile. When ctx ends, the leases that are left end with
// [ErrClosed], and their locks run out in the store: Shutdown never releases a lock under running
// work.
//
// Shutdown also repeats releases that the store has not confirmed, until ctx ends: of Unlocks, and of
// acquisitions whose outcome is unknown. The error has the number of leases and of releases that are
// left, and some names. It wraps ctx's error, or [ErrUnavailable] if a release fails for a reason that
// stays, such as a closed Redis client.
//
// Afterwards no connection of the client is left, no goroutine but those of calls that the store has
// not answered, and every operation returns ErrClosed. A Redis client that was passed to the backend
// stays open. A second call waits for the first and returns the same; if the second call's ctx ends
// earlier, so does the waiting of the first.
func (c *Client) Shutdown(ctx context.Context) error { return c.inner().Shutdown(ctx) }
