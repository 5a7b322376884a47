package property

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
)

// contract is what the port promises of one name, in plain Go and with no store: which owner
// may hold it, how many times, what is left, which owner is told. No time passes in it. A lease that is
// over is said to be (over, permit.ended): the tests wait for that everywhere before
// they go on, and all other leases are far longer than any test.
type contract struct {
	*record
	locks
	sides
	counters
}

// record is what is stored under the name, and what was told of it.
type record struct {
	// One of these at most is set.
	lock    *grip
	rw      *shared
	count   *int64
	foreign bool

	line  []string // the fair queue
	claim string   // the claimant that keeps fresh readers out; "" for none
	out   map[string]*outside
	once  map[string]int64 // what each request that was carried out took, by its ID

	told map[backend.Topic]int // how often, by topic, with no name
}

type grip struct {
	owner string
	holds int
	lease time.Duration
}

type shared struct {
	writer  string
	holds   int
	lease   time.Duration // the record's
	readers map[string]*outside
}

// outside is a reader's hold, or a permit that is out.
type outside struct {
	lease time.Duration
	ended bool
}

func newContract() *contract {
	r := &record{out: map[string]*outside{}, once: map[string]int64{}, told: map[backend.Topic]int{}}
	return &contract{r, locks{r}, sides{r}, counters{r}}
}

// reply is what any operation of the port came to.
type reply struct {
	err     string // see verdict
	yes     bool   // granted, held, done, set
	claimed bool
	absent  bool
	queued  bool
	token   bool
	n       int64 // a count, or what is available
	left    time.Duration
	owner   string
	holds   int
	readers int
	reading bool
}

// far is how far apart two remaining times may be, where the leases are ten
// minutes and more: a machine that stands still for a while changes no verdict.
const far = 4 * time.Minute

func (a reply) agrees(b reply) bool {
	apart := a.left - b.left
	if (a.left < 0) != (b.left < 0) || (a.left == 0) != (b.left == 0) || apart.Abs() > far {
		return false
	}
	a.left = b.left
	return a == b
}

func (a reply) String() string {
	s := a.err
	for _, f := range []struct {
		is   bool
		what string
	}{{a.yes, "yes"}, {a.claimed, "claimed"}, {a.absent, "absent"}, {a.queued, "queued"}, {a.token, "token"},
		{a.reading, "reading"}} {
		if f.is {
			s += " " + f.what
		}
	}
	return fmt.Sprintf("{%s n=%d left=%v owner=%q holds=%d readers=%d}", s, a.n, a.left, a.owner, a.holds, a.readers)
}

// sentence is verdict, with all refusals of a bad request alike.
func sentence(err error) string {
	v := verdict(err)
	var f *backend.Fault
	if errors.As(err, &f) && strings.HasPrefix(v, "an error") {
		return "fault"
	}
	return v
}

var wrong = reply{err: "backend.WrongKind"}

func fine(yes bool) reply { return reply{err: "ok", yes: yes} }

func (c *record) tell(k backend.Kind, owner string) {
	c.told[backend.Topic{Kind: k, Owner: owner}]++
	switch k { // these share a channel
	case backend.KindCountingSemaphore:
		c.told[backend.Topic{Kind: backend.KindSemaphore}]++
	case backend.KindSemaphore:
		c.told[backend.Topic{Kind: backend.KindCountingSemaphore}]++
	}
}

func (c *record) free() bool { return c.lock == nil && c.rw == nil && c.count == nil && !c.foreign }

// remove is an operator's.
func (c *record) remove() { c.lock, c.rw, c.count, c.foreign = nil, nil, nil, false }

func (c *record) occupy() {
	c.remove()
	c.foreign = true
}

// locks is the plain lock, fenced or not, and the fair one. All that wait can be reached and wait for longer than
// the test.
type locks struct{ *record }

func (c locks) acquire(q anykind.AcquireRequest) reply {
	switch {
	case c.free():
		c.lock = &grip{q.Owner, 1, q.Lease}
	case c.lock == nil:
		return wrong
	case c.lock.owner != q.Owner:
		return reply{err: "ok", left: c.lock.lease}
	}
	return reply{err: "ok", yes: true, token: q.Fenced}
}

func (c locks) holds(owner string) bool { return c.lock != nil && c.lock.owner == owner }

// elsewhere is the answer to an owner of a lock that holds none: data that is no lock of
// any kind is an error, a read-write lock is not held.
func (c *record) elsewhere() reply {
	if c.count != nil || c.foreign {
		return wrong
	}
	return fine(false)
}

func (c locks) reenter(q anykind.HoldsRequest) reply {
	if !c.holds(q.Owner) {
		return c.elsewhere()
	}
	c.lock.holds, c.lock.lease = q.Holds, max(c.lock.lease, q.Lease)
	return reply{err: "ok", yes: true, token: q.Fenced}
}

func (c locks) release(q anykind.ReleaseRequest) reply {
	switch {
	case !c.holds(q.Owner):
		return c.elsewhere()
	case q.Keep > 0:
		c.lock.holds = q.Keep
		return fine(true)
	}
	c.lock = nil
	if q.Kind == backend.KindFair {
		c.first()
	} else {
		c.tell(backend.KindLock, "")
	}
	return fine(true)
}

// none is the answer where no record is of the kind that is asked for.
func (c *record) none() reply {
	if c.free() {
		return fine(false)
	}
	return wrong
}

func (c locks) force() reply {
	if c.lock == nil {
		return c.none()
	}
	c.lock = nil
	c.tell(backend.KindLock, "")
	if len(c.line) > 0 {
		c.tell(backend.KindFair, c.line[0])
	}
	return fine(true)
}

func (c locks) inspect() reply {
	if c.lock == nil {
		return c.none()
	}
	return reply{err: "ok", yes: true, owner: c.lock.owner, holds: c.lock.holds, left: c.lock.lease}
}

func (c locks) first() {
	if len(c.line) > 0 {
		c.tell(backend.KindFair, c.line[0])
		return
	}
	c.tell(backend.KindLock, "")
}

func (c locks) ask(q anykind.AcquireRequest) reply {
	if !c.free() && c.lock == nil {
		return wrong
	}
	if c.holds(q.Owner) {
		return reply{err: "ok", yes: true, token: q.Fenced}
	}
	at := slices.Index(c.line, q.Owner)
	if c.lock == nil && (len(c.line) == 0 || at == 0) {
		c.line = slices.DeleteFunc(c.line, func(o string) bool { return o == q.Owner })
		return c.acquire(q)
	}
	if q.Wait > 0 && at < 0 {
		c.line = append(c.line, q.Owner)
	}
	if c.lock != nil {
		return reply{err: "ok", left: c.lock.lease}
	}
	c.tell(backend.KindFair, c.line[0])
	return fine(false)
}

func (c locks) leave(q backend.LeaveRequest) reply {
	r := reply{err: "ok", yes: c.holds(q.Owner)}
	if r.yes {
		c.lock = nil
	}
	at := slices.Index(c.line, q.Owner)
	if at >= 0 {
		r.queued = true
		c.line = slices.Delete(c.line, at, at+1)
	}
	if r.yes || at == 0 && c.free() {
		c.first()
	}
	return r
}

// sides is the read-write lock.
type sides struct{ *record }

func (c sides) reads(owner string) bool {
	if c.rw == nil {
		return false
	}
	h := c.rw.readers[owner]
	return h != nil && !h.ended
}

// longest is the longest lease of its readers; zero if there are none.
func (c sides) longest() (most time.Duration) {
	for _, h := range c.rw.readers {
		if !h.ended {
			most = max(most, h.lease)
		}
	}
	return most
}

func (c sides) read(q anykind.AcquireRequest) reply {
	switch {
	case c.count != nil || c.foreign:
		return wrong
	case c.reads(q.Owner):
		return fine(true)
	case q.Under != "":
		if q.UnderKind == backend.KindRead && !c.reads(q.Under) ||
			q.UnderKind == backend.KindWrite && (c.rw == nil || c.rw.writer != q.Under) {
			return reply{err: "ok", absent: true}
		}
	case c.lock != nil:
		return wrong
	case c.rw != nil && c.rw.writer != "":
		return reply{err: "ok", left: c.rw.lease}
	case c.claim != "":
		return reply{err: "ok", left: claimFor}
	}
	if c.rw == nil {
		c.rw = &shared{readers: map[string]*outside{}}
	}
	c.rw.readers[q.Owner] = &outside{lease: q.Lease}
	c.rw.lease = max(c.rw.lease, q.Lease)
	return fine(true)
}

func (c sides) write(q anykind.AcquireRequest) reply {
	switch {
	case c.free():
		if c.claim == q.Claimant {
			c.claim = ""
		}
		c.rw = &shared{writer: q.Owner, holds: 1, lease: q.Lease, readers: map[string]*outside{}}
		return fine(true)
	case c.rw == nil:
		return wrong
	case c.rw.writer == q.Owner:
		return fine(true)
	}
	r := reply{err: "ok", left: c.rw.lease}
	if c.rw.writer == "" && q.Claim > 0 {
		c.claim, r.claimed = q.Claimant, true
	}
	return r
}

func (c sides) writes(owner string) bool { return c.rw != nil && c.rw.writer == owner }

func (c sides) rewrite(q anykind.HoldsRequest) reply {
	switch {
	case q.Kind == backend.KindRead:
		return reply{err: "fault"}
	case !c.writes(q.Owner):
		return c.elsewhere()
	}
	c.rw.holds, c.rw.lease = q.Holds, max(c.rw.lease, q.Lease)
	return fine(true)
}

func (c sides) releaseSide(q anykind.ReleaseRequest) reply {
	if q.Kind == backend.KindWrite {
		switch {
		case !c.writes(q.Owner):
			return c.elsewhere()
		case q.Keep > 0:
			c.rw.holds = q.Keep
			return fine(true)
		}
		c.rw.writer, c.rw.holds = "", 0
		c.settle()
		c.tell(backend.KindWrite, "")
		return fine(true)
	}
	if c.rw == nil || c.rw.readers[q.Owner] == nil {
		return c.elsewhere()
	}
	held := c.reads(q.Owner)
	delete(c.rw.readers, q.Owner)
	if c.rw.writer == "" {
		if c.settle(); c.rw == nil {
			c.tell(backend.KindWrite, "")
		}
	}
	return fine(held)
}

// settle has the record live as long as the longest of its readers.
func (c sides) settle() {
	if c.rw.lease = c.longest(); c.rw.lease == 0 {
		c.rw = nil
	}
}

func (c sides) withdraw(claimant string) reply {
	if c.claim == claimant {
		c.claim = ""
		c.tell(backend.KindWrite, "")
	}
	return fine(false)
}

func (c sides) inspectRW() reply {
	if c.rw == nil {
		return c.none()
	}
	r := reply{err: "ok", yes: true, left: c.rw.lease, owner: c.rw.writer, holds: c.rw.holds}
	var reading []string
	for o := range maps.Keys(c.rw.readers) {
		if c.reads(o) {
			reading = append(reading, o)
		}
	}
	r.readers = len(reading)
	if c.rw.writer == "" && len(reading) > 0 {
		r.owner, r.holds = slices.Min(reading), 1
	}
	r.reading = c.rw.writer == ""
	return r
}

func (c sides) forceRW() reply {
	if c.rw == nil {
		return c.none()
	}
	c.rw = nil
	c.tell(backend.KindWrite, "")
	return fine(true)
}

// renew is that of all kinds.
func (c *contract) renew(q anykind.RenewRequest) bool {
	var lease *time.Duration
	switch q.Kind {
	case backend.KindSemaphore:
		if p := c.out[q.Owner]; p != nil && !p.ended {
			lease = &p.lease
		}
	case backend.KindRead:
		if c.reads(q.Owner) {
			lease = &c.rw.readers[q.Owner].lease
			c.rw.lease = max(c.rw.lease, q.Lease)
		}
	case backend.KindWrite:
		if c.writes(q.Owner) {
			lease = &c.rw.lease
		}
	default:
		if c.holds(q.Owner) {
			lease = &c.lock.lease
		}
	}
	if lease == nil {
		return false
	}
	*lease = max(*lease, q.Lease)
	return true
}

// over: the lease that an owner just got has run out.
func (c *contract) over(k backend.Kind, owner string) {
	switch k {
	case backend.KindSemaphore:
		c.out[owner].ended = true
	case backend.KindRead:
		c.rw.readers[owner].ended = true
		if c.rw.writer == "" && c.longest() == 0 {
			c.rw = nil
		}
	case backend.KindWrite:
		c.rw = nil
	default:
		c.lock = nil
	}
}

// counters are counts, and permits that expire.
type counters struct{ *record }

func (c *record) misfit() bool { return !c.free() && c.count == nil }

func (c *record) there() int64 {
	if c.count == nil {
		return 0
	}
	return *c.count
}

func (c *record) add(n int64) int64 {
	n += c.there()
	c.count = &n
	return n
}

func counts(yes bool, n int64) reply { return reply{err: "ok", yes: yes, n: n} }

// decided is what a request did, or what it had done when it comes twice.
func (c counters) decided(q backend.CountRequest, can bool, do func()) reply {
	took, twice := c.once[q.ID]
	switch {
	case c.misfit():
		return wrong
	case twice:
		return fine(took == 1)
	case !can:
		c.once[q.ID] = 0
		return fine(false)
	}
	c.once[q.ID] = 1
	do()
	return fine(true)
}

func (c counters) setCount(q backend.CountRequest) reply {
	return c.decided(q, c.count == nil, func() {
		if c.add(q.N); q.N > 0 {
			c.tell(q.Topic.Kind, "")
		}
	})
}

func (c counters) addCount(q backend.CountRequest) reply {
	if c.misfit() {
		return wrong
	}
	if _, twice := c.once[q.ID]; !twice {
		c.once[q.ID] = 1
		if c.add(q.N) > 0 && q.N > 0 {
			c.tell(q.Topic.Kind, "")
		}
	}
	return counts(false, c.there())
}

func (c counters) take(q backend.CountRequest) reply {
	took, twice := c.once[q.ID]
	switch {
	case c.misfit():
		return wrong
	case twice:
		return counts(took == 1, c.there())
	case c.there() < q.N:
		return counts(false, c.there())
	}
	c.once[q.ID] = 1
	return counts(true, c.add(-q.N))
}

func (c counters) cancel(q backend.CountRequest) reply {
	if c.misfit() {
		return wrong
	}
	took := c.once[q.ID] == 1
	c.once[q.ID] = 0
	if took && c.count != nil && c.add(q.N) > 0 {
		c.tell(q.Topic.Kind, "")
	}
	return fine(false)
}

func (c counters) drain(q backend.CountRequest) reply {
	took, twice := c.once[q.ID]
	switch {
	case c.misfit():
		return wrong
	case !twice:
		took = c.there()
		c.once[q.ID] = took
		if c.count != nil {
			c.add(-took)
		}
	}
	return counts(false, took)
}

func (c counters) countDown(q backend.CountRequest) reply {
	if c.misfit() {
		return wrong
	}
	_, twice := c.once[q.ID]
	c.once[q.ID] = 1
	if !twice && c.count != nil {
		if c.add(-1) > 0 {
			return counts(false, c.there())
		}
		c.count = nil
		c.tell(backend.KindCountDownLatch, "")
	}
	return counts(false, c.there())
}

func (c counters) deleteCount(q backend.CountRequest) reply {
	return c.decided(q, c.count != nil, func() {
		c.count = nil
		c.tell(backend.KindCountDownLatch, "")
	})
}

func (c counters) readCount(k backend.Kind) reply {
	if c.misfit() {
		return wrong
	}
	if k == backend.KindSemaphore && c.reclaim() && c.there() > 0 {
		c.tell(k, "")
	}
	return counts(false, c.there())
}

func (c counters) reclaim() (some bool) {
	for id, p := range c.out {
		if p.ended {
			delete(c.out, id)
			c.add(1)
			some = true
		}
	}
	return some
}

func (c counters) permit(q anykind.AcquireRequest) reply {
	if c.misfit() {
		return wrong
	}
	some := c.reclaim()
	r := reply{err: "ok", yes: true}
	switch {
	case c.out[q.Owner] != nil:
	case c.there() > 0:
		c.add(-1)
		c.out[q.Owner] = &outside{lease: q.Lease}
	default:
		r.yes, r.left = false, -1
		for _, p := range c.out {
			if r.left < 0 || p.lease < r.left {
				r.left = p.lease
			}
		}
	}
	r.n = c.there()
	if some && r.n > 0 {
		c.tell(backend.KindSemaphore, "")
	}
	return r
}

func (c counters) returned(q anykind.ReleaseRequest) reply {
	p := c.out[q.Owner]
	switch {
	case p == nil:
		return fine(false)
	case c.misfit():
		return wrong
	}
	delete(c.out, q.Owner)
	if c.add(1) > 0 {
		c.tell(backend.KindSemaphore, "")
	}
	return fine(!p.ended)
}
