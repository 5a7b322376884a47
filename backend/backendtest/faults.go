package backendtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// Op is an operation of a session.
type Op string

// The operations that Faults sees.
const (
	OpAcquire      Op = "acquire"
	OpSetHolds     Op = "reenter"
	OpRelease      Op = "release"
	OpRenew        Op = "renew"
	OpInspect      Op = "inspect"
	OpForceRelease Op = "force release"
	OpSubscribe    Op = "watch"
	OpUnsubscribe  Op = "unwatch"
	OpPing         Op = "ping"
)

// Call is one call of a session's method.
type Call struct {
	Op Op
	// Name and Owner are those of the request; of the first, for OpRenew.
	Name, Owner string
	// Requests is the length of the batch for OpRenew, OpAcquireAll and OpReleaseAll, else one.
	Requests int
	// Asks tells an OpRenew that only asks whether each is held.
	Asks bool
	// Began and Ended number the beginnings and ends of all calls in the order in
	// which they happened, from 1. Ended is 0 while the call is under way.
	Began, Ended int
	// Err is what the caller was told, once it has ended.
	Err error
}

// Fate is what becomes of a call. The zero Fate lets it pass. For OpSubscribe and
// OpUnsubscribe, which return at once, there is no other.
type Fate struct {
	// Before holds the call until it is closed, and then runs it.
	Before <-chan struct{}
	// After runs the call and holds its reply until it is closed.
	After <-chan struct{}
	// Refused does not run it: the caller is told so, and that it may pass.
	Refused bool
	// Lost runs the call and loses the reply: its outcome is unknown to the caller.
	Lost bool
	// Later tells the caller at once that the outcome is unknown, and runs the
	// call when it is closed: a command that was still on its way.
	Later <-chan struct{}
}

// Faults is a backend in front of another. It writes down every call of its
// sessions, and lets a hook decide what becomes of it.
type Faults struct {
	under backend.Backend

	mu        sync.Mutex
	hook      func(Call) Fate
	calls     []Call
	count     int
	watching  int
	confirmed map[backend.Topic]int // when a watch was confirmed last, as calls are numbered
	late      int                   // calls that are to run later, and have not
}

// errInjected is the cause of every fault that Faults makes up.
var errInjected = errors.New("injected fault")

// NewFaults puts Faults in front of b.
func NewFaults(b backend.Backend) *Faults { return &Faults{under: b} }

// Open implements [backend.Backend].
func (f *Faults) Open(h backend.Handler) (backend.Store, error) {
	s, err := f.under.Open(watchCounter{h, f})
	if err != nil {
		return nil, err
	}
	return &faulty{Store: s, f: f}, nil
}

// Hook sets the function that is asked what becomes of each call, in the
// goroutine of the call and before it; nil lets all pass.
func (f *Faults) Hook(fn func(Call) Fate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = fn
}

// on is a hook that has a fate for calls of these operations, and lets all others pass.
func on(fate Fate, ops ...Op) func(Call) Fate {
	return func(c Call) Fate {
		if slices.Contains(ops, c.Op) {
			return fate
		}
		return Fate{}
	}
}

// lateFates are the fates of a request whose caller leaves before it has the reply, which come to their end
// when a channel is closed.
var lateFates = map[string]func(<-chan struct{}) Fate{
	"the reply is late":    replyLate,
	"the request is late":  requestLate,
	"it arrives afterward": arrivesLate,
	"the reply is lost":    func(<-chan struct{}) Fate { return Fate{Lost: true} },
}

// requestLate, replyLate and arrivesLate are the fates that a channel ends.
func requestLate(ch <-chan struct{}) Fate { return Fate{Before: ch} }
func replyLate(ch <-chan struct{}) Fate   { return Fate{After: ch} }
func arrivesLate(ch <-chan struct{}) Fate { return Fate{Later: ch} }

// holds sets a hook that has one of these fates for calls of these operations.
func (f *Faults) holds(fate func(<-chan struct{}) Fate, ops ...Op) (end chan struct{}) {
	end = make(chan struct{})
	f.Hook(on(fate(end), ops...))
	return end
}

// holdsFirst is holds for the first call of op; began is closed when that call begins.
func (f *Faults) holdsFirst(fate func(<-chan struct{}) Fate, op Op) (end chan struct{}, began <-chan struct{}) {
	end = make(chan struct{})
	hook, began := first(fate(end), op)
	f.Hook(hook)
	return end, began
}

// first is a hook that has a fate for the first call of op, and lets all others pass. The channel is
// closed when that call begins.
func first(fate Fate, op Op) (hook func(Call) Fate, began <-chan struct{}) {
	var once sync.Once
	ch := make(chan struct{})
	return func(c Call) (f Fate) {
		if c.Op == op {
			once.Do(func() { f = fate; close(ch) })
		}
		return f
	}, ch
}

// elapsed returns a channel that is closed after d.
func elapsed(d time.Duration) <-chan struct{} {
	ch := make(chan struct{})
	time.AfterFunc(d, func() { close(ch) })
	return ch
}

// Calls returns the calls of these operations, or all, in the order in which they began.
func (f *Faults) Calls(ops ...Op) []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Call
	for _, c := range f.calls {
		if len(ops) == 0 || slices.Contains(ops, c.Op) {
			out = append(out, c)
		}
	}
	return out
}

// Count counts the calls of these operations, or all.
func (f *Faults) Count(ops ...Op) int { return len(f.Calls(ops...)) }

// answered counts the calls of these operations that have ended without an error.
func (f *Faults) answered(ops ...Op) (n int) {
	for _, c := range f.Calls(ops...) {
		if c.Ended > 0 && c.Err == nil {
			n++
		}
	}
	return n
}

// Watching counts how often a watch was confirmed.
func (f *Faults) Watching() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.watching
}

type watchCounter struct {
	backend.Handler
	f *Faults
}

func (w watchCounter) Watching(t backend.Topic) {
	w.f.mu.Lock()
	w.f.count++
	if w.f.confirmed == nil {
		w.f.confirmed = make(map[backend.Topic]int)
	}
	w.f.confirmed[t] = w.f.count
	w.f.mu.Unlock()
	w.Handler.Watching(t)
	w.f.mu.Lock()
	w.f.watching++
	w.f.mu.Unlock()
}

var _ backend.QueueHandler = watchCounter{}

// Granted implements [backend.QueueHandler].
func (w watchCounter) Granted(t backend.Topic, g backend.Grant) {
	w.Handler.(backend.QueueHandler).Granted(t, g)
}

// Reserved implements [backend.QueueHandler].
func (w watchCounter) Reserved(t backend.Topic, entry uint64) {
	w.Handler.(backend.QueueHandler).Reserved(t, entry)
}

// First implements [backend.QueueHandler].
func (w watchCounter) First(t backend.Topic, entry uint64, after time.Duration) {
	w.Handler.(backend.QueueHandler).First(t, entry, after)
}

// Wanted implements [backend.QueueHandler].
func (w watchCounter) Wanted(t backend.Topic, entry uint64) {
	w.Handler.(backend.QueueHandler).Wanted(t, entry)
}

// Freed implements [backend.QueueHandler].
func (w watchCounter) Freed(t backend.Topic) { w.Handler.(backend.QueueHandler).Freed(t) }

// numbered is how many beginnings, ends and confirmations there were.
func (f *Faults) numbered() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// underway counts the calls of these operations that have not ended, and all that are to
// run later.
func (f *Faults) underway(ops ...Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.late
	for _, c := range f.calls {
		if c.Ended == 0 && slices.Contains(ops, c.Op) {
			n++
		}
	}
	return n
}

func (f *Faults) begin(c Call) (int, Fate) {
	f.mu.Lock()
	f.count++
	c.Began = f.count
	c.Requests = max(c.Requests, 1)
	f.calls = append(f.calls, c)
	i, hook := len(f.calls)-1, f.hook
	f.mu.Unlock()
	if hook == nil {
		return i, Fate{}
	}
	return i, hook(c)
}

func (f *Faults) end(i int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	f.calls[i].Ended = f.count
	f.calls[i].Err = err
}

func unknown() error {
	return &backend.Fault{Err: errInjected, Remedy: "none, a test wants it so", MayHaveRun: true, Temporary: true}
}

func refused() error {
	return &backend.Fault{Err: errInjected, Remedy: "none, a test wants it so", Temporary: true}
}

// pass runs op as its fate will have it.
func pass[R any](f *Faults, ctx context.Context, c Call, op func(context.Context) (R, error)) (reply R, err error) {
	i, fate := f.begin(c)
	defer func() { f.end(i, err) }()
	var none R
	if fate.Refused {
		return none, refused()
	}
	if fate.Later != nil {
		f.mu.Lock()
		f.late++
		f.mu.Unlock()
		go func() {
			<-fate.Later
			op(context.WithoutCancel(ctx))
			f.mu.Lock()
			f.late--
			f.mu.Unlock()
		}()
		return none, unknown()
	}
	if fate.Before != nil {
		select {
		case <-fate.Before:
		case <-ctx.Done():
			return none, refused()
		}
	}
	reply, err = op(ctx)
	if fate.After != nil {
		select {
		case <-fate.After:
		case <-ctx.Done():
			return none, unknown()
		}
	}
	if fate.Lost {
		return none, unknown()
	}
	return reply, err
}

// with is op with a request.
func with[Q, R any](q Q, op func(context.Context, Q) (R, error)) func(context.Context) (R, error) {
	return func(ctx context.Context) (R, error) { return op(ctx, q) }
}

// only is op with a request, where it has no reply.
func only[Q any](q Q, op func(context.Context, Q) error) func(context.Context) (struct{}, error) {
	return func(ctx context.Context) (struct{}, error) { return struct{}{}, op(ctx, q) }
}

// passBatch runs a batch as its fate will have it: op answers each of in at its place in out.
func passBatch[Q, R any](f *Faults, ctx context.Context, c Call, in []Q, out []R, op batch[Q, R]) {
	in = slices.Clone(in)
	got, err := pass(f, ctx, c, func(ctx context.Context) ([]R, error) {
		out := make([]R, len(in))
		op.run(ctx, in, out)
		return out, nil
	})
	copy(out, got)
	if err != nil {
		for i := range out {
			out[i] = op.failed(err)
		}
	}
}

// batch is an operation on several requests.
type batch[Q, R any] struct {
	run    func(context.Context, []Q, []R)
	failed func(error) R
}

// faulty is a session with faults.
type faulty struct {
	backend.Store
	f *Faults
}

// Capabilities implements [backend.Store]: what the session under it can do, with faults.
func (s *faulty) Capabilities() backend.Capabilities {
	can := s.Store.Capabilities()
	can.Partitions = nil // rules count the commands of a client, not of a client and a part
	if can.ReadWrite != nil {
		can.ReadWrite = faultyReadWrite{s.f, can.ReadWrite}
	}
	if can.Fair != nil {
		can.Fair = faultyFair{s.f, can.Fair}
	}
	if can.Batch != nil {
		can.Batch = faultyBatch{can.Batch, s.f}
	}
	if can.CountingSemaphores != nil {
		can.CountingSemaphores = faultyCountingSemaphores{
			faultyCount[backend.CountingSemaphoreStore]{s.f, can.CountingSemaphores}}
	}
	if can.CountDownLatches != nil {
		can.CountDownLatches = faultyLatches{faultyCount[backend.CountDownLatchStore]{s.f, can.CountDownLatches}}
	}
	if can.Semaphores != nil {
		can.Semaphores = faultySemaphores{faultyCount[backend.SemaphoreStore]{s.f, can.Semaphores}}
	}
	if can.Delegation != nil {
		can.Delegation = faultyDelegation{s, can.Delegation}
	}
	if can.Enrolments != nil {
		can.Enrolments = faultyEnrolments{s, can.Enrolments}
	}
	if can.Queue != nil {
		can.Queue = faultyQueue{s, can.Queue}
	}
	if can.Age != nil {
		can.Age = faultyAge{can.Age, s.f}
	}
	if can.Operator != nil {
		can.Operator = faultyOperator{s.f, can.Operator}
	}
	if can.List != nil {
		can.List = faultyList{s.f, can.List}
	}
	if can.Ticks != nil {
		can.Ticks = faultyTicks{s.f, can.Ticks}
	}
	if can.Proclamations != nil {
		can.Proclamations = faultyProclamations{s.f, can.Proclamations}
	}
	return can
}

func (s *faulty) Acquire(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	return leaving(ctx, s.leaves(backend.KindLock) && r.Replicas == 0,
		func(ctx context.Context) (backend.AcquireReply, error) {
			return pass(s.f, ctx, Call{Op: OpAcquire, Name: r.Name, Owner: r.Owner}, with(r, s.Store.Acquire))
		})
}

// leaves reports whether callers of the session under it can leave.
func (s *faulty) leaves(k backend.Kind) bool {
	l := s.Store.Capabilities().Leaver
	return l != nil && l.Leaves(k)
}

// leaving runs op so that its caller can leave, if leaves.
func leaving[R any](ctx context.Context, leaves bool, op func(context.Context) (R, error)) (R, error) {
	if !leaves || ctx.Done() == nil {
		return op(ctx)
	}
	var reply R
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		reply, err = op(context.WithoutCancel(ctx))
	}()
	select {
	case <-done:
		return reply, err
	case <-ctx.Done():
		var none R
		return none, &backend.Left[R]{Wait: func() (R, error) { <-done; return reply, err }}
	}
}

func (s *faulty) SetHolds(ctx context.Context, r backend.HoldsRequest) (backend.HoldsReply, error) {
	return s.f.setHolds(ctx, r, s.Store.SetHolds)
}

func (f *Faults) setHolds(ctx context.Context, r backend.HoldsRequest,
	op func(context.Context, backend.HoldsRequest) (backend.HoldsReply, error)) (backend.HoldsReply, error) {
	return pass(f, ctx, Call{Op: OpSetHolds, Name: r.Name, Owner: r.Owner}, with(r, op))
}

func (s *faulty) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return leaving(ctx, s.leaves(backend.KindLock), func(ctx context.Context) (backend.ReleaseReply, error) {
		return s.f.release(ctx, r, s.Store.Release)
	})
}

func (f *Faults) release(ctx context.Context, r backend.ReleaseRequest,
	op func(context.Context, backend.ReleaseRequest) (backend.ReleaseReply, error)) (backend.ReleaseReply, error) {
	return pass(f, ctx, Call{Op: OpRelease, Name: r.Name, Owner: r.Owner}, with(r, op))
}

func (s *faulty) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	s.f.renew(ctx, in, out, s.Store.Renew)
}

func (f *Faults) renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult,
	op func(context.Context, []backend.RenewRequest, []backend.RenewResult)) {
	c := Call{Op: OpRenew, Requests: len(in),
		Asks: !slices.ContainsFunc(in, func(r backend.RenewRequest) bool { return r.Lease > 0 })}
	if len(in) > 0 {
		c.Name, c.Owner = in[0].Name, in[0].Owner
	}
	passBatch(f, ctx, c, in, out, batch[backend.RenewRequest, backend.RenewResult]{
		op, func(err error) backend.RenewResult { return backend.RenewResult{Err: err} },
	})
}

func (s *faulty) Inspect(ctx context.Context, name string) (backend.Record, error) {
	return pass(s.f, ctx, Call{Op: OpInspect, Name: name}, with(name, s.Store.Inspect))
}

func (s *faulty) ForceRelease(ctx context.Context, r backend.ForceRequest) (bool, error) {
	return pass(s.f, ctx, Call{Op: OpForceRelease, Name: r.Name, Owner: r.Owner}, with(r, s.Store.ForceRelease))
}

func (s *faulty) Ping(ctx context.Context) error {
	_, err := pass(s.f, ctx, Call{Op: OpPing}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.Store.Ping(ctx)
	})
	return err
}

func (s *faulty) Subscribe(t backend.Topic) {
	i, _ := s.f.begin(Call{Op: OpSubscribe, Name: t.Name, Owner: t.Owner})
	s.Store.Subscribe(t)
	s.f.end(i, nil)
}

func (s *faulty) Unsubscribe(t backend.Topic) {
	i, _ := s.f.begin(Call{Op: OpUnsubscribe, Name: t.Name, Owner: t.Owner})
	s.Store.Unsubscribe(t)
	s.f.end(i, nil)
}
