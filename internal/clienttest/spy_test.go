package clienttest

import (
	"context"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

// spy is a store in memory that counts its calls; a test may hook each of them.
type spy struct {
	*memory.Store
	// can lists the fields of [backend.Capabilities] that its sessions have, with spaces between them.
	can string
	// leaves has callers whose contexts end leave the calls that have a hook.
	leaves bool
	// listen, if set, returns the handler that a session of the memory store tells instead of h.
	listen func(h backend.Handler) backend.Handler

	mu    sync.Mutex
	hooks hooks
	sent  map[string]int
	heard atomic.Int32  // requests that say that a foreign client released
	entry atomic.Uint64 // the entry of the last request to enrol
}

// hooks has functions that are called instead of methods of a session, by the method's name: "Acquire", or with
// the kind where methods of two kinds share a name, "Fair.Acquire".
type hooks map[string]func(*call) error

// spied are the names that hooks may have.
const spied = " Acquire SetHolds Release Renew Inspect ForceRelease Fair.Acquire Fair.Release Fair.Leave " +
	"AcquireAll ReleaseAll Serve Leave AcquireRead AcquireWrite ReleaseRead ReleaseWrite SetWriteHolds " +
	"RenewReads RenewWrites Withdraw Enter Delegation.Release Permits.Acquire Permits.Release Permits.Renew " +
	"LeaveQueue AddCount TakeCount SetLimit Latch.Count Proclaimed "

// anyCall is the name of the hook of all methods that have none of their own.
const anyCall = "any"

// call is a call of a session's method, on its way to the store.
type call struct {
	ctx            context.Context
	handler        backend.Handler
	request, reply any                         // reply is a pointer
	run            func(context.Context) error // makes the call and fills reply in
}

// spyOn returns a spy on s; can is as in spy.
func spyOn(s *memory.Store, can string, h hooks) *spy {
	b := &spy{Store: s, can: can}
	for op, f := range h {
		b.hook(op, f)
	}
	return b
}

// hook calls f instead of a method, from now on; a nil f ends that.
func (b *spy) hook(op string, f func(*call) error) {
	if op != anyCall && !strings.Contains(spied, " "+op+" ") {
		panic("a spy has no calls of " + op)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	h := hooks{op: f}
	for other, f := range b.hooks {
		if other != op {
			h[other] = f
		}
	}
	b.hooks = h
}

// take counts the calls of the methods since the last count.
func (b *spy) take(ops ...string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, op := range ops {
		n += b.sent[op]
		delete(b.sent, op)
	}
	return n
}

func (b *spy) Open(h backend.Handler) (backend.Store, error) {
	under := h
	if b.listen != nil {
		under = b.listen(h)
	}
	s, err := b.Store.Open(under)
	return spySession{s, b, h}, err
}

type spySession struct {
	backend.Store
	spy     *spy
	handler backend.Handler
}

// through makes a call by its hook, if it has one. A hook may make the call after it has returned an error; the
// reply then reaches no caller.
func through[Q, R any](
	s spySession, ctx context.Context, op string, q Q, do func(context.Context, Q) (R, error),
) (reply R, err error) {
	s.spy.mu.Lock()
	if s.spy.sent == nil {
		s.spy.sent = make(map[string]int)
	}
	s.spy.sent[op]++
	hook := s.spy.hooks[op]
	if hook == nil {
		hook = s.spy.hooks[anyCall]
	}
	s.spy.mu.Unlock()
	if hook == nil {
		return do(ctx, q)
	}
	hooked := func() (reply R, err error) {
		got := new(R)
		c := &call{ctx: ctx, handler: s.handler, request: q, reply: got}
		c.run = func(ctx context.Context) (err error) {
			*got, err = do(ctx, q)
			return err
		}
		if err := hook(c); err != nil {
			return reply, err
		}
		return *got, nil
	}
	if !s.spy.leaves || ctx.Done() == nil {
		return hooked()
	}
	type outcome struct {
		reply R
		err   error
	}
	done := later(func() outcome {
		reply, err := hooked()
		return outcome{reply, err}
	})
	select {
	case x := <-done:
		return x.reply, x.err
	case <-ctx.Done():
		return reply, &backend.Left[R]{Wait: func() (R, error) {
			x := <-done
			return x.reply, x.err
		}}
	}
}

// renew makes a call that renews; a hook's error is that of each renewal.
func (s spySession) renew(ctx context.Context, op string, in []backend.RenewRequest, out []backend.RenewResult,
	do func(context.Context, []backend.RenewRequest, []backend.RenewResult),
) {
	type results = []backend.RenewResult
	got, err := through(s, ctx, op, in, func(ctx context.Context, in []backend.RenewRequest) (results, error) {
		got := make(results, len(in)) // a late call has its own
		do(ctx, in, got)
		return got, nil
	})
	copy(out, got)
	for i := range out {
		if err != nil {
			out[i].Err = err
		}
	}
}

func (s spySession) Capabilities() (has backend.Capabilities) {
	all := s.Store.Capabilities()
	all.Fair, all.Batch, all.Queue = spyFair{all.Fair, s}, spyBatch{all.Batch, s}, spyQueue{all.Queue, s}
	all.ReadWrite, all.Delegation = spyReadWrite{all.ReadWrite, s}, spyDelegation{all.Delegation, s}
	all.CountingSemaphores = spyCounts{all.CountingSemaphores, s}
	all.CountDownLatches = spyLatches{all.CountDownLatches, s}
	all.Semaphores, all.Enrolments = spySemaphores{all.Semaphores, s}, spyEnrolments{all.Enrolments, s}
	all.Age, all.Proclamations = spyAge{all.Age, s}, spyProclamations{all.Proclamations, s}
	all.Partitions = spyParts{}
	all.Leaver, all.Replicas = s, true
	for _, name := range strings.Fields(s.spy.can) {
		reflect.ValueOf(&has).Elem().FieldByName(name).Set(reflect.ValueOf(all).FieldByName(name))
	}
	has.Grants = has.Queue != nil && all.Grants
	return has
}

func (spySession) Leaves(k backend.Kind) bool { return k == backend.KindLock }

func (s spySession) Acquire(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	return through(s, ctx, "Acquire", r, s.Store.Acquire)
}

func (s spySession) SetHolds(ctx context.Context, r backend.HoldsRequest) (backend.HoldsReply, error) {
	return through(s, ctx, "SetHolds", r, s.Store.SetHolds)
}

func (s spySession) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return through(s, ctx, "Release", r, s.Store.Release)
}

func (s spySession) Inspect(ctx context.Context, name string) (backend.Record, error) {
	return through(s, ctx, "Inspect", name, s.Store.Inspect)
}

func (s spySession) ForceRelease(ctx context.Context, r backend.ForceRequest) (bool, error) {
	return through(s, ctx, "ForceRelease", r, s.Store.ForceRelease)
}

func (s spySession) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	s.renew(ctx, "Renew", in, out, s.Store.Renew)
}

type spyQueue struct {
	backend.QueueStore
	at spySession
}

// Enrol counts as an Acquire, and has its hook called.
func (s spyQueue) Enrol(ctx context.Context, r backend.EnrolRequest) (backend.EnrolReply, error) {
	s.at.spy.entry.Store(r.Entry)
	if r.Heard {
		s.at.spy.heard.Add(1)
	}
	var got atomic.Pointer[backend.EnrolReply]
	enrol := func(ctx context.Context, q backend.AcquireRequest) (backend.AcquireReply, error) {
		r := r
		r.AcquireRequest = q
		reply, err := s.QueueStore.Enrol(ctx, r)
		got.Store(&reply)
		return reply.AcquireReply, err
	}
	reply, err := through(s.at, ctx, "Acquire", r.AcquireRequest, enrol)
	out := backend.EnrolReply{AcquireReply: reply}
	if x := got.Load(); err == nil && x != nil {
		out.Enrolled, out.First, out.Foreign = x.Enrolled, x.First, x.Foreign
	}
	return out, err
}

func (s spyQueue) Serve(ctx context.Context, r backend.ServeRequest) (backend.ServeReply, error) {
	return through(s.at, ctx, "Serve", r, s.QueueStore.Serve)
}

func (s spyQueue) Leave(ctx context.Context, r backend.LeaveEntryRequest) error {
	return errorOf(through(s.at, ctx, "Leave", r.Name, func(ctx context.Context, _ string) (any, error) {
		return nil, s.QueueStore.Leave(ctx, r)
	}))
}

type spyAge struct {
	backend.AgeStore
	at spySession
}

// AcquireAged counts as an Acquire, and has its hook called.
func (s spyAge) AcquireAged(ctx context.Context, r backend.AgedRequest) (backend.AgedReply, error) {
	var young atomic.Bool
	acquire := func(ctx context.Context, q backend.AcquireRequest) (backend.AcquireReply, error) {
		reply, err := s.AgeStore.AcquireAged(ctx, backend.AgedRequest{AcquireRequest: q, Age: r.Age})
		young.Store(reply.Young)
		return reply.AcquireReply, err
	}
	reply, err := through(s.at, ctx, "Acquire", r.AcquireRequest, acquire)
	return backend.AgedReply{AcquireReply: reply, Young: err == nil && young.Load()}, err
}

type spyEnrolments struct {
	backend.EnrolmentStore
	at spySession
}

func (s spyEnrolments) LeaveQueue(ctx context.Context, t backend.Topic, entry uint64, owner string) error {
	return errorOf(through(s.at, ctx, "LeaveQueue", t, func(ctx context.Context, t backend.Topic) (any, error) {
		return nil, s.EnrolmentStore.LeaveQueue(ctx, t, entry, owner)
	}))
}

type spySemaphores struct {
	backend.SemaphoreStore
	at spySession
}

func (s spySemaphores) Acquire(ctx context.Context, r backend.PermitRequest) (backend.PermitReply, error) {
	return through(s.at, ctx, "Permits.Acquire", r, s.SemaphoreStore.Acquire)
}

func (s spySemaphores) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return through(s.at, ctx, "Permits.Release", r, s.SemaphoreStore.Release)
}

func (s spySemaphores) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	s.at.renew(ctx, "Permits.Renew", in, out, s.SemaphoreStore.Renew)
}

func (s spySemaphores) SetLimit(ctx context.Context, r backend.CountRequest) (int64, error) {
	return through(s.at, ctx, "SetLimit", r, s.SemaphoreStore.SetLimit)
}

type spyFair struct {
	backend.FairStore
	at spySession
}

func (s spyFair) Acquire(ctx context.Context, r backend.FairRequest) (backend.FairReply, error) {
	return through(s.at, ctx, "Fair.Acquire", r, s.FairStore.Acquire)
}

func (s spyFair) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return through(s.at, ctx, "Fair.Release", r, s.FairStore.Release)
}

func (s spyFair) Leave(ctx context.Context, r backend.LeaveRequest) (backend.LeaveReply, error) {
	return through(s.at, ctx, "Fair.Leave", r, s.FairStore.Leave)
}

type spyBatch struct {
	backend.BatchStore
	at spySession
}

func (s spyBatch) AcquireAll(ctx context.Context, in []backend.AcquireRequest) ([]backend.AcquireReply, error) {
	return through(s.at, ctx, "AcquireAll", in, s.BatchStore.AcquireAll)
}

// ReleaseAll counts once, and has the hook "ReleaseAll" called for each request.
func (s spyBatch) ReleaseAll(ctx context.Context, in []backend.ReleaseRequest, out []backend.ReleaseResult) {
	for i, r := range in {
		release := func(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseResult, error) {
			var got [1]backend.ReleaseResult
			s.BatchStore.ReleaseAll(ctx, in[i:i+1], got[:])
			return got[0], nil
		}
		reply, err := through(s.at, ctx, "ReleaseAll", r, release)
		if out[i] = reply; err != nil {
			out[i].Err = err
		}
		if i > 0 {
			s.at.spy.mu.Lock()
			s.at.spy.sent["ReleaseAll"]-- // one command in all
			s.at.spy.mu.Unlock()
		}
	}
}

type spyReadWrite struct {
	backend.ReadWriteStore
	at spySession
}

func (s spyReadWrite) AcquireRead(ctx context.Context, r backend.ReadRequest) (backend.ReadReply, error) {
	return through(s.at, ctx, "AcquireRead", r, s.ReadWriteStore.AcquireRead)
}

func (s spyReadWrite) AcquireWrite(ctx context.Context, r backend.WriteRequest) (backend.WriteReply, error) {
	return through(s.at, ctx, "AcquireWrite", r, s.ReadWriteStore.AcquireWrite)
}

func (s spyReadWrite) ReleaseRead(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return through(s.at, ctx, "ReleaseRead", r, s.ReadWriteStore.ReleaseRead)
}

func (s spyReadWrite) ReleaseWrite(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return through(s.at, ctx, "ReleaseWrite", r, s.ReadWriteStore.ReleaseWrite)
}

func (s spyReadWrite) SetWriteHolds(ctx context.Context, r backend.HoldsRequest) (backend.HoldsReply, error) {
	return through(s.at, ctx, "SetWriteHolds", r, s.ReadWriteStore.SetWriteHolds)
}

func (s spyReadWrite) RenewReads(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	s.at.renew(ctx, "RenewReads", in, out, s.ReadWriteStore.RenewReads)
}

func (s spyReadWrite) RenewWrites(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	s.at.renew(ctx, "RenewWrites", in, out, s.ReadWriteStore.RenewWrites)
}

func (s spyReadWrite) Withdraw(ctx context.Context, name, claimant string) error {
	withdraw := func(ctx context.Context, name string) (any, error) {
		return nil, s.ReadWriteStore.Withdraw(ctx, name, claimant)
	}
	return errorOf(through(s.at, ctx, "Withdraw", name, withdraw))
}

type spyDelegation struct {
	backend.DelegationStore
	at spySession
}

func (s spyDelegation) Enter(ctx context.Context, r backend.EnterRequest) (backend.EnterReply, error) {
	return through(s.at, ctx, "Enter", r, s.DelegationStore.Enter)
}

func (s spyDelegation) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return through(s.at, ctx, "Delegation.Release", r, s.DelegationStore.Release)
}

type spyCounts struct {
	backend.CountingSemaphoreStore
	at spySession
}

func (s spyCounts) TakeCount(ctx context.Context, r backend.CountRequest) (backend.TakeReply, error) {
	return through(s.at, ctx, "TakeCount", r, s.CountingSemaphoreStore.TakeCount)
}

func (s spyCounts) AddCount(ctx context.Context, r backend.CountRequest) (int64, error) {
	return through(s.at, ctx, "AddCount", r, s.CountingSemaphoreStore.AddCount)
}

type spyLatches struct {
	backend.CountDownLatchStore
	at spySession
}

func (s spyLatches) Count(ctx context.Context, t backend.Topic) (int64, error) {
	return through(s.at, ctx, "Latch.Count", t, s.CountDownLatchStore.Count)
}

type spyProclamations struct {
	backend.ProclamationStore
	at spySession
}

func (s spyProclamations) Proclaimed(ctx context.Context, name string) (backend.Proclamation, error) {
	return through(s.at, ctx, "Proclaimed", name, s.ProclamationStore.Proclaimed)
}

// unknownOutcome is the error of a command whose reply is lost: the store may have done it.
func unknownOutcome() error {
	return &backend.Fault{Err: errGone, MayHaveRun: true, Temporary: true}
}

// replyLost is a hook of a call that the store makes, and whose reply is lost.
func replyLost(c *call) error {
	if err := c.run(context.Background()); err != nil {
		return err
	}
	return unknownOutcome()
}

// onceClosed is a hook of a call that is made when ch is closed, whether its caller waits for it or not.
func onceClosed(ch <-chan struct{}) func(*call) error {
	return func(c *call) error {
		<-ch
		return c.run(context.Background())
	}
}

// delayed is a hook of a call that takes d longer, whether its caller waits for it or not.
func delayed(d time.Duration) func(*call) error {
	return func(c *call) error {
		time.Sleep(d)
		return c.run(context.Background())
	}
}

// unanswered is a hook of a call that is not answered before its caller leaves.
func unanswered(c *call) error {
	<-c.ctx.Done()
	return &backend.Fault{Err: c.ctx.Err(), MayHaveRun: true, Temporary: true}
}

// spyParts is a store of several parts, each with the names that begin with one letter.
type spyParts struct{}

func (spyParts) Partition(name string) int { return int(name[0]) }
