package mortise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// Client takes locks in one store. It implements [Locker] with the reentrant lock.
// It is safe for concurrent use; a process needs one per store. What runs in the
// background does not grow with the locks held or waited for.
type Client struct {
	clock
	id       string
	prefix   string // of owners
	watchdog time.Duration
	stayOut  time.Duration // of its store, in Red; negative: as long as the watchdog timeout
	outScope string        // whose record of the store's age is asked for then
	observer Observer
	log      *slog.Logger
	teller   *teller
	session  backend.Session
	leaver   backend.Leaver       // the session, if it is one
	nodes    backend.NodeSession  // the session, if it is one
	relay    backend.RelaySession // the session, if it is one

	// base is the context of commands. A caller's ends only its wait: a command
	// that was sent is always awaited, by somebody, so that what it got is not
	// left behind.
	base    context.Context
	cancel  context.CancelFunc
	closing chan struct{} // closed when Shutdown begins
	closed  chan struct{} // closed when Shutdown is over
	hurry   chan error    // a second Shutdown ends the waiting of the first
	outcome error         // what Shutdown came to; set before closed is closed
	first   uint64        // what owners are numbered from, another for each client
	owners  atomic.Uint64 // numbers owners, never twice
	leases  atomic.Uint64 // numbers holds

	watchMu sync.Mutex // orders calls of Watch and Unwatch; taken before mu

	mu   sync.Mutex
	gate gate // where the store is one node, or the node is not known
	// gates are of the nodes, and of acquisitions that wait for replicas: of gateKey, *gate. What is in them is
	// guarded by mu.
	gates   sync.Map
	queues  map[backend.Topic]*queue
	spare   []*waiters                     // of queues in which nobody waits any more
	eras    uint64                         // numbers those in use
	watched map[backend.Topic]*watch       // what the session was asked to watch
	lines   map[string]*line               // of fair locks, by name
	permits map[string]*owner              // of expiring permits, by id
	nested  map[string]map[*owner]struct{} // those who entered under another, by name
	sched   schedule
	held    int           // live owners
	running int           // commands whose end must be awaited
	idle    chan struct{} // non-nil once Shutdown waits for held and running to be zero
	shut    bool          // Shutdown has begun, at shutAt
	over    bool          // and has ended the leases that were left
	shutAt  instant
}

// DefaultWatchdogTimeout is the lease of locks without [WithLease], unless
// [WithWatchdogTimeout] says otherwise. It is Redisson's.
const DefaultWatchdogTimeout = 30 * time.Second

// patience is how long a call goes on repeating a command that fails for a reason
// that may pass, before it returns ErrUnavailable.
const patience = 5 * time.Second

// ClientOption changes a client.
type ClientOption func(*Client) error

// WithID sets the client's id, by which others see who holds a lock. It must be
// unique among all clients of the store, at all times: two that share one would release each
// other's locks. It is 1 to 256 bytes of UTF-8 without control characters. By default it is
// "host/pid/random".
func WithID(id string) ClientOption {
	return func(c *Client) error {
		if err := checkID(id); err != nil {
			return err
		}
		c.id = id
		return nil
	}
}

// WithWatchdogTimeout sets the lease of locks that are taken without [WithLease].
// They are renewed every third of it while the holder lives, and free themselves
// after it when the holder died. At least one second.
func WithWatchdogTimeout(d time.Duration) ClientOption {
	return func(c *Client) error {
		if d < time.Second || d > MaxLease {
			return fmt.Errorf("%w: WithWatchdogTimeout(%v): between 1s and %v", ErrInvalid, d, MaxLease)
		}
		c.watchdog = ceilMilli(d)
		return nil
	}
}

// WithObserver sets what is called on the client's events. See [Observer] for when, and by which
// goroutine.
func WithObserver(o Observer) ClientOption {
	return func(c *Client) error { c.observer = o; return nil }
}

// WithLogger sets where the client says what an operator should know: leases lost,
// renewals that fail, waits on its own holder that look like a deadlock. Without it
// the client is silent.
//
// The logger is called by a goroutine of its own, from the queue that [Observer] describes, so a
// handler that is slow or blocks delays no lease. What concerns many leases is said once a
// second, with their number. A record's time is that of the line, not of what it is about.
func WithLogger(l *slog.Logger) ClientOption {
	return func(c *Client) error { c.log = l; return nil }
}

// New makes a client on a backend: redisgo.New(...), rueidis.New(...) or
// memory.New(). It does no I/O, so a store that is away shows in the first call;
// [Client.Ping] asks. Errors wrap [ErrInvalid].
func New(b backend.Backend, opts ...ClientOption) (*Client, error) {
	if b == nil {
		return nil, &Error{Op: "new", Err: fmt.Errorf("%w: the backend is nil; pass redisgo.New(...), rueidis.New(...) or memory.New()", ErrInvalid)}
	}
	c := &Client{
		clock:    clock{epoch: time.Now()},
		watchdog: DefaultWatchdogTimeout,
		stayOut:  -1,
		closing:  make(chan struct{}),
		closed:   make(chan struct{}),
		hurry:    make(chan error),
		queues:   make(map[backend.Topic]*queue),
		watched:  make(map[backend.Topic]*watch),
		lines:    make(map[string]*line),
		permits:  make(map[string]*owner),
		gate:     gate{width: gateWidth},
	}
	for _, o := range opts {
		if o == nil {
			continue
		}
		if err := o(c); err != nil {
			return nil, &Error{Op: "new", Err: err}
		}
	}
	if c.id == "" {
		c.id = newID()
	} else {
		// A client with the same id that ran before, and perhaps crashed, has left owners
		// and remembered requests in the store: begin elsewhere.
		c.first = rand.Uint64() >> 12
	}
	c.prefix = c.id + ":"
	c.base, c.cancel = context.WithCancel(context.Background())
	c.sched.init(c.clock)
	c.teller = newTeller(c.log)
	session, err := b.Open((*events)(c))
	if err != nil {
		c.cancel()
		return nil, &Error{Op: "new", Err: fmt.Errorf("%w: %w", ErrInvalid, err)}
	}
	c.session = session
	c.leaver, _ = session.(backend.Leaver)
	c.nodes, _ = session.(backend.NodeSession)
	if r, is := session.(backend.RelaySession); is && r.Relays() {
		c.relay = r
	}
	return c, nil
}

// usable refuses a client that New did not make.
func (c *Client) usable() error {
	if c == nil || c.session == nil {
		return errZero
	}
	return nil
}

var errZero = fmt.Errorf("%w: the Client is nil or a zero value; make it with mortise.New", ErrInvalid)

// ID is the client's id, the part before the last colon of an owner.
func (c *Client) ID() string { return c.id }

// Ping asks the store for a sign of life and makes it ready (loads scripts). An
// error wraps [ErrUnavailable].
func (c *Client) Ping(ctx context.Context) error {
	if ctx == nil {
		ctx = context.Background()
	}
	if err := c.usable(); err != nil {
		return &Error{Op: "ping", Err: err}
	}
	err := await(c, ctx, func() error { return c.session.Ping(c.base) }, nil)
	if err != nil {
		return &Error{Op: "ping", Err: c.explain(err)}
	}
	return nil
}

// node numbers the node of the store that has a name; 0 where there is one only, or it is not known.
func (c *Client) node(name string) int {
	if c.nodes == nil {
		return 0
	}
	return c.nodes.Node(name)
}

func (c *Client) newOwnerID() string {
	var b [20]byte
	return c.prefix + string(strconv.AppendUint(b[:0], c.first+c.owners.Add(1), 10))
}

// explain puts the sentinel before a backend's error.
func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, backend.ErrWrongKind):
		return fmt.Errorf("%w: %w", ErrWrongKind, err)
	case errors.Is(err, backend.ErrSessionClosed), errors.Is(err, errClosing):
		return ErrClosed
	}
	var caller *callerGone
	if errors.As(err, &caller) {
		return err
	}
	if c.base.Err() != nil {
		return fmt.Errorf("%w before the store answered: %w", ErrClosed, notCallers(err))
	}
	return unavailable(err)
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", ErrUnavailable, notCallers(err)) }

// notCallers hides from errors.Is that a context ended: commands run under the
// client's context, so it is the client library's own and not the caller's.
func notCallers(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return &library{err}
	}
	return err
}

// library is an error whose context errors are not the caller's.
type library struct{ error }

func (e *library) As(target any) bool { return errors.As(e.error, target) }

func (e *library) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(e.error, target)
}

// effects are what must be done after the mutex was let go: first all contexts of leases that
// are over end, then the rest in its order. None of it calls the user's code: see teller.
type effects struct {
	ends   []ending
	rest   []func()
	told   []func() // called by teller
	teller *teller
}

type ending struct {
	hold  *hold
	cause error
}

// end ends the context of a hold whose cause is set.
func (e *effects) end(h *hold, cause error) { e.ends = append(e.ends, ending{h, cause}) }

func (e *effects) then(f func()) { e.rest = append(e.rest, f) }

// tell has a handler of the user's called by t.
func (e *effects) tell(t *teller, f func()) { e.told, e.teller = append(e.told, f), t }

func (e *effects) run() {
	for _, x := range e.ends {
		x.hold.end(x.cause)
	}
	for _, f := range e.rest {
		f()
	}
	for _, f := range e.told {
		e.teller.event(f)
	}
}
