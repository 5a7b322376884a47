package property

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/test/internal/harness"
)

const (
	// queuers is how many sessions wait for one name.
	queuers = 4
	// inTime is how long a sequence lasts at most: what an entry was told of is kept for a second.
	inTime = 600 * time.Millisecond
)

// queueEars notes what a session is told of a name, in order.
type queueEars struct {
	hearing
	told  []string
	sides bool // which entry for permits is told that it is the first is the store's own affair
}

func (e *queueEars) hears(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, what)
}

func (e *queueEars) Granted(_ backend.Topic, g backend.Grant) {
	e.hears(fmt.Sprint("granted ", g.Owner, " ", g.Lease))
}

func (e *queueEars) Reserved(_ backend.Topic, entry uint64) { e.hears(fmt.Sprint("reserved ", entry)) }

func (e *queueEars) First(_ backend.Topic, entry uint64, after time.Duration) {
	if e.sides {
		e.hears(fmt.Sprint("first ", entry, " ", after))
	}
}

func (e *queueEars) Wanted(backend.Topic, uint64) {}
func (e *queueEars) Freed(backend.Topic)          { e.hears("released") }
func (e *queueEars) Released(backend.Topic)       { e.hears("released") }

func (e *queueEars) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.told)
}

// queueWorld is a store with its sessions.
type queueWorld struct {
	*store
	ears [queuers]*queueEars
	port [queuers]backend.Store
}

func openQueueWorlds(t *testing.T, kind backend.Kind) (worlds []*queueWorld) {
	for _, s := range openStores(t)[:2] {
		w := &queueWorld{store: s}
		for i := range queuers {
			w.ears[i] = &queueEars{sides: kind == backend.KindWrite}
			w.ears[i].watching = map[backend.Topic]int{}
			w.port[i] = harness.Must(s.Open(w.ears[i]))(t)
			t.Cleanup(func() { w.port[i].Close() })
		}
		worlds = append(worlds, w)
	}
	return worlds
}

func (w *queueWorld) can(i int) backend.Capabilities { return w.port[i].Capabilities() }

// queuing is one sequence of requests with entries.
type queuing struct {
	worlds []*queueWorld
	name   string
	kind   backend.Kind
	began  time.Time
	number int // of the last request
	entry  [queuers]uint64
	in     [queuers]bool    // the session's entry is in the queue
	front  [queuers]bool    // it asked again, perhaps because it was told to, and was refused
	held   []string         // owners
	sizes  map[string]int64 // of what owners hold
	// Releases grant to some sessions: what each has asked for, and was not told in a reply that it has it.
	grants [queuers]bool
	asked  [queuers]asked
}

// asked is what a session asks for until it has it.
type asked struct {
	owner string // empty: nothing
	wants int64
	least int64
}

// claimant is who a session's claims are of: a release that grants an owner finds the claimant in the owner's name.
func (m *queuing) claimant(i int) string {
	if m.grants[i] {
		return fmt.Sprint("w", i)
	}
	return fmt.Sprint("c", i)
}

func (m *queuing) topic(w *queueWorld) backend.Topic {
	return backend.Topic{Kind: m.kind, Name: w.key(m.name)}
}

// next is a request's number in words.
func (m *queuing) next(of string) string {
	m.number++
	return fmt.Sprint(of, m.number)
}

// outcome is what a request came to.
type outcome struct {
	err              string
	granted, claimed bool
	absent           bool
	available        int64
	waits            time.Duration // see roughly
	queue            backend.QueueReply
}

// roughly rounds the rest of a lease or a reservation.
func roughly(d time.Duration) time.Duration {
	switch {
	case d <= 0:
		return d
	case d <= 1200*time.Millisecond: // with the spare of a grant
		return time.Second
	}
	return time.Minute
}

func (m *queuing) late() bool { return time.Since(m.began) > inTime }

// each makes a request in every world, and compares what came of it.
func (m *queuing) each(t *rapid.T, what string, op func(*queueWorld) outcome) outcome {
	t.Helper()
	want := op(m.worlds[0])
	t.Logf("%s: %+v", what, want)
	for _, w := range m.worlds[1:] {
		if got := op(w); got != want && !m.late() {
			t.Fatalf("%s: %s answers %+v, %s answers %+v", what, m.worlds[0].label, want, w.label, got)
		}
	}
	return want
}

// ask asks as a session, with its entry or without one. The order of two entries that are refused though they were
// told to ask is the store's own affair, so there is one of those at a time.
func (m *queuing) ask(t *rapid.T) {
	i := which4.Draw(t, "session")
	if m.late() || m.in[i] && !m.front[i] && slices.Contains(m.front[:], true) {
		return
	}
	q := backend.Enrolment{}
	if m.in[i] || rapid.IntRange(0, 4).Draw(t, "enrols") > 0 {
		q.Entry = m.entry[i]
	}
	x := &m.asked[i]
	if q.Grants = m.grants[i] && q.Entry > 0; q.Grants && x.owner != "" && rapid.IntRange(0, 5).Draw(t, "instead") == 0 {
		m.settle(t, i) // a session that asks for another owner heeds no message about the one before
		q.Instead = x.owner
		m.held, m.sizes[x.owner] = append(m.held, x.owner), x.wants // perhaps
		*x = asked{}
	}
	var owner string
	var got outcome
	wants := int64(1)
	again := q.Grants && x.owner != ""
	if again {
		wants, q.Least = x.wants, x.least
	}
	switch {
	case m.kind == backend.KindWrite && (again && x.owner[0] == 'r' || !again && rapid.Bool().Draw(t, "reads")):
		if owner = x.owner; !again {
			owner = m.next("r")
		}
		owner, got = m.read(t, i, backend.ReadRequest{Owner: owner, Enrolment: q})
	case m.kind == backend.KindWrite:
		if owner = x.owner; !again {
			owner = m.next(fmt.Sprint("w", i, ":"))
		}
		owner, got = m.write(t, i, owner, q)
	default:
		if !again {
			wants = int64(rapid.IntRange(1, 3).Draw(t, "wants"))
			q.Least = int64(rapid.IntRange(1, int(wants)).Draw(t, "least"))
		}
		q.Stays = q.Entry > 0 && rapid.IntRange(0, 2).Draw(t, "stays") == 0
		if m.kind == backend.KindSemaphore {
			if owner = x.owner; !again {
				owner = m.ids(wants)
			}
			owner, got = m.permits(t, i, owner, q)
		} else {
			owner, got = m.take(t, i, wants, q)
		}
	}
	m.holds(owner, wants, got)
	if q.Grants {
		if *x = (asked{owner, wants, q.Least}); got.granted || !got.queue.Enrolled {
			*x = asked{}
		}
	}
	if q.Entry > 0 {
		m.front[i] = !got.granted && m.in[i]
		if m.in[i] = got.queue.Enrolled; !m.in[i] {
			m.entry[i] += queuers
		}
	}
}

var which4 = rapid.IntRange(0, queuers-1)

// holds notes what was granted.
func (m *queuing) holds(owner string, wants int64, got outcome) {
	if got.granted {
		m.held = append(m.held, owner)
		m.sizes[owner] = wants
	}
}

func (m *queuing) read(t *rapid.T, i int, q backend.ReadRequest) (owner string, got outcome) {
	q.Lease = time.Minute
	return q.Owner, m.each(t, fmt.Sprintf("%+v", q), func(w *queueWorld) outcome {
		q := q
		q.Name = w.key(m.name)
		r, err := w.can(i).ReadWrite.AcquireRead(context.Background(), q)
		return outcome{
			err: verdict(err), granted: r.Granted, absent: r.Absent, waits: roughly(r.Remaining), queue: r.QueueReply,
		}
	})
}

func (m *queuing) write(t *rapid.T, i int, as string, e backend.Enrolment) (owner string, got outcome) {
	q := backend.WriteRequest{Owner: as, Lease: time.Minute, Claimant: m.claimant(i), Enrolment: e}
	if rapid.Bool().Draw(t, "claims") {
		q.Claim = time.Minute
	}
	return q.Owner, m.each(t, fmt.Sprintf("%+v", q), func(w *queueWorld) outcome {
		q := q
		q.Name = w.key(m.name)
		r, err := w.can(i).ReadWrite.AcquireWrite(context.Background(), q)
		return outcome{
			err: verdict(err), granted: r.Granted, claimed: r.Claimed, waits: roughly(r.Remaining), queue: r.QueueReply,
		}
	})
}

func (m *queuing) take(t *rapid.T, i int, wants int64, e backend.Enrolment) (owner string, got outcome) {
	q := backend.CountRequest{ID: m.next("t"), N: wants, Enrolment: e}
	return q.ID, m.each(t, fmt.Sprintf("%+v", q), func(w *queueWorld) outcome {
		q := q
		q.Topic = m.topic(w)
		r, err := w.can(i).CountingSemaphores.TakeCount(context.Background(), q)
		return outcome{
			err: verdict(err), granted: r.Granted, available: r.Available, waits: roughly(r.Remaining), queue: r.QueueReply,
		}
	})
}

// ids are the ids of that many permits, joined.
func (m *queuing) ids(wants int64) string {
	ids := make([]string, wants)
	for n := range ids {
		m.number++
		ids[n] = fmt.Sprintf("%032x", m.number)
	}
	return strings.Join(ids, ",")
}

func (m *queuing) permits(t *rapid.T, i int, as string, e backend.Enrolment) (owner string, got outcome) {
	q := backend.PermitRequest{Owner: as, Lease: time.Minute, Enrolment: e}
	q.Limit = rapid.SampledFrom([]int64{0, 3, 4, 5}).Draw(t, "limit")
	q.Declare = rapid.IntRange(0, 3).Draw(t, "declare") == 0
	return q.Owner, m.each(t, fmt.Sprintf("%+v", q), func(w *queueWorld) outcome {
		q := q
		q.Name = w.key(m.name)
		r, err := w.can(i).Semaphores.Acquire(context.Background(), q)
		return outcome{
			err: verdict(err), granted: r.Granted, available: r.Available, waits: roughly(r.Remaining), queue: r.QueueReply,
		}
	})
}

// enter has a reader enter under a hold.
func (m *queuing) enter(t *rapid.T) {
	if m.late() || len(m.held) == 0 {
		return
	}
	under := oneOf(t, "under", m.held)
	q := backend.ReadRequest{Owner: m.next("r"), Under: under, UnderWriter: under[0] == 'w'}
	owner, got := m.read(t, which4.Draw(t, "session"), q)
	m.holds(owner, 1, got)
}

func (m *queuing) free(t *rapid.T) {
	if m.late() || len(m.held) == 0 {
		return
	}
	owner, i, id := oneOf(t, "owner", m.held), which4.Draw(t, "session"), m.next("f")
	m.held = slices.DeleteFunc(slices.Clone(m.held), func(x string) bool { return x == owner })
	m.each(t, "free "+owner, func(w *queueWorld) outcome {
		release := func(ctx context.Context, q backend.ReleaseRequest) (r backend.ReleaseReply, err error) {
			add := backend.CountRequest{Topic: m.topic(w), ID: id, N: m.sizes[owner]}
			_, err = w.can(i).CountingSemaphores.AddCount(ctx, add)
			return r, err
		}
		switch {
		case m.kind == backend.KindSemaphore:
			release = w.can(i).Semaphores.Release
		case owner[0] == 'r':
			release = w.can(i).ReadWrite.ReleaseRead
		case owner[0] == 'w':
			release = w.can(i).ReadWrite.ReleaseWrite
		}
		r, err := release(context.Background(), backend.ReleaseRequest{Name: w.key(m.name), Owner: owner})
		return outcome{err: verdict(err), granted: r.Held}
	})
}

func (m *queuing) leave(t *rapid.T) {
	i := which4.Draw(t, "session")
	if m.late() || !m.in[i] {
		return
	}
	owner := m.asked[i].owner
	m.each(t, fmt.Sprint("leave ", m.entry[i], " ", owner), func(w *queueWorld) outcome {
		leave := w.can(i).Enrolments.LeaveQueue
		return outcome{err: verdict(leave(context.Background(), m.topic(w), m.entry[i], owner))}
	})
	m.asked[i] = asked{}
	m.in[i], m.front[i] = false, false
	m.entry[i] += queuers
}

func (m *queuing) withdraw(t *rapid.T) {
	i := which4.Draw(t, "session")
	m.each(t, fmt.Sprint("withdraw ", i), func(w *queueWorld) outcome {
		err := w.can(i).ReadWrite.Withdraw(context.Background(), w.key(m.name), m.claimant(i))
		return outcome{err: verdict(err)}
	})
}

func (m *queuing) force(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
		return
	}
	m.each(t, "force", func(w *queueWorld) outcome {
		did, err := w.can(0).ReadWrite.ForceReleaseRW(context.Background(), backend.ForceRequest{Name: w.key(m.name)})
		return outcome{err: verdict(err), granted: did}
	})
	m.held = nil
}

func (m *queuing) setLimit(t *rapid.T) {
	q := backend.CountRequest{ID: m.next("s"), N: int64(rapid.IntRange(0, 4).Draw(t, "limit"))}
	m.each(t, fmt.Sprint("limit ", q.N), func(w *queueWorld) outcome {
		q := q
		q.Topic = m.topic(w)
		free, err := w.can(0).Semaphores.SetLimit(context.Background(), q)
		return outcome{err: verdict(err), available: free}
	})
}

// settle returns when a session has been told all that there is for it: what it is told comes in order, and it watches
// one thing more.
func (m *queuing) settle(t *rapid.T, i int) {
	for _, w := range m.worlds {
		e, topic := w.ears[i], backend.Topic{Kind: backend.KindCountDownLatch, Name: w.key(fresh())}
		w.port[i].Subscribe(topic)
		await(t, "it watches", func() bool { return e.count(e.watching, topic) > 0 })
		w.port[i].Unsubscribe(topic)
	}
}

// look compares what the sessions were told.
func (m *queuing) look(t *rapid.T) {
	for i := range queuers {
		model, until := m.worlds[0].ears[i], time.Now().Add(inTime/2)
		for _, w := range m.worlds[1:] {
			for got := w.ears[i].all(); !m.late() && !slices.Equal(got, model.all()); got = w.ears[i].all() {
				harness.FatalIf(t, time.Now().After(until), "session %d: %s told it %q, %s %q",
					i, m.worlds[0].label, model.all(), w.label, got)
				time.Sleep(50 * time.Microsecond)
			}
		}
	}
}

// watch has all sessions told of the name.
func (m *queuing) watch(t *rapid.T) (unwatch func()) {
	each := func(f func(w *queueWorld, i int)) {
		for _, w := range m.worlds {
			for i := range queuers {
				f(w, i)
			}
		}
	}
	each(func(w *queueWorld, i int) { w.port[i].Subscribe(m.topic(w)) })
	each(func(w *queueWorld, i int) {
		e := w.ears[i]
		await(t, "it watches", func() bool { return e.count(e.watching, m.topic(w)) > 0 })
		e.mu.Lock()
		defer e.mu.Unlock()
		e.told = nil
	})
	return func() { each(func(w *queueWorld, i int) { w.port[i].Unsubscribe(m.topic(w)) }) }
}

// Which session gets what it asks for, which has an entry in the queue, and which is told to ask is the same in every
// store, after whatever sequence of requests.
func TestEveryStoreTellsTheEntriesOfItsQueuesAsTheModelDoes(t *testing.T) {
	for name, kind := range map[string]backend.Kind{
		"rw": backend.KindWrite, "counting semaphore": backend.KindCountingSemaphore, "semaphore": backend.KindSemaphore,
	} {
		t.Run(name, func(t *testing.T) {
			worlds := openQueueWorlds(t, kind)
			rapid.Check(t, func(t *rapid.T) {
				m := &queuing{worlds: worlds, kind: kind, name: fresh() + oneOf(t, "name", []string{"n", "{t}:n"})}
				m.sizes, m.entry = map[string]int64{}, [queuers]uint64{1, 2, 3, 4}
				for i := range m.grants {
					m.grants[i] = kind != backend.KindCountingSemaphore && rapid.Bool().Draw(t, "grants")
				}
				defer m.watch(t)()
				m.began = time.Now()
				all := actions{
					"ask": m.ask, "ask too": m.ask, "ask more": m.ask, "free": m.free, "free too": m.free,
					"leave": m.leave, "": m.look,
				}
				switch kind {
				case backend.KindWrite:
					all["withdraw"], all["enter"], all["force"] = m.withdraw, m.enter, m.force
				case backend.KindSemaphore:
					all["limit"] = m.setLimit
				default:
					m.held, m.sizes["f"] = []string{"f"}, 3 // permits, once they are added
				}
				repeat(t, all)
			})
		})
	}
}
