package record

import (
	"fmt"
	"slices"

	"github.com/mortise-go/mortise/backend"
)

// Name is all that a store keeps of one name, for a store that keeps one value a name. The zero Name is a name that
// nothing is known of. Name also has what a store with a process of its own keeps elsewhere: the sessions that watch.
//
// At most one of Lock, Sides and Permits has data: see [Name.Data]. The others may have waiters.
type Name struct {
	// Foreign: another program's data has the name. It is not encoded.
	Foreign bool
	Lock    Lock
	Sides   Sides
	Permits Permits
	Said    Said
	Tick    Tick
	// Did has the requests that are remembered so that they are not executed twice.
	Did []Did
	// Token is the last fencing token; 0 if none was drawn.
	Token int64
	// Watches has the sessions that watch topics of the name, each once.
	Watches []Watch
	// Wrote is the last change of the name: the session that made it, and the session's number for it.
	Wrote Wrote
	// Name is the name, if the store's key is not the name itself.
	Name string
	// Rest is what a later version of this package has added. It is kept as it is.
	Rest []byte
}

// Did is a remembered request: its ID, what it came to, and until when it is remembered. Its session may forget it.
type Did struct {
	ID      string
	Took    int64
	Session Session
	Until   Time
}

// Watch is a session that watches topics of a name. Their names are empty.
type Watch struct {
	Session Session
	// Enrols: the session can have entries in queues.
	Enrols bool
	Topics []backend.Topic
	// Until is when the session is taken for dead unless it has renewed its Watch.
	Until Time
}

// Wrote identifies a change.
type Wrote struct {
	By     Session
	Number uint64
}

// Data says what data a name has.
type Data uint8

// The data of a name. Places in queues and watches are no data.
const (
	NoData Data = iota
	LockData
	SidesData
	CountData
	ForeignData
)

// AnyLock stands for the kinds of locks in [Name.Refuses], which have a state of their own each, AnyRecord for any data
// of the port, and AnyData for any data at all.
const (
	AnyLock backend.Kind = 255 - iota
	AnyRecord
	AnyData
)

// Data returns what data a name has.
func (n *Name) Data() Data {
	switch {
	case n.Foreign:
		return ForeignData
	case !n.Lock.Free():
		return LockData
	case n.Sides.End != 0:
		return SidesData
	case n.Permits.Counts:
		return CountData
	}
	return NoData
}

// Empty reports whether nothing has to be kept, but perhaps a token and a time until which requests are remembered.
func (n *Name) Empty(now Time) bool {
	return !n.Foreign && n.Lock.Empty(now) && n.Sides.Empty(now) && n.Permits.Empty(now) && len(n.Watches) == 0 &&
		n.Said == Said{} && n.Tick == Tick{} && len(n.Did) == 0
}

// Refuses returns an error if a name has other data than a kind of lock needs: a side of a read-write lock, a count,
// any other kind of lock, AnyLock or AnyRecord.
func (n *Name) Refuses(k backend.Kind) error {
	want := LockData
	switch k {
	case backend.KindRead, backend.KindWrite:
		want = SidesData
	case backend.KindCountDownLatch, backend.KindCountingSemaphore, backend.KindSemaphore:
		want = CountData
	}
	has := n.Data()
	if has == NoData || has == want || k == AnyLock && has == SidesData ||
		k == AnyRecord && has != ForeignData || k == AnyData {
		return nil
	}
	what, remedy := "a count", "choose another name, or use latches and semaphores"
	switch has {
	case ForeignData:
		what, remedy = "foreign data under this name", "choose another name, or delete the data"
	case SidesData:
		what, remedy = "a read-write lock", "choose another name, or use Client.RW"
	case LockData:
		what, remedy = "a lock of another kind", "choose another name, or use Lock, Inspect and ForceUnlock"
	}
	return &backend.Fault{Err: fmt.Errorf("%w: %s", backend.ErrWrongKind, what), Remedy: remedy}
}

// Ends returns when the name has to be looked at if nothing happens until then; 0 if never.
func (n *Name) Ends() (first Time) {
	for _, end := range [...]Time{n.Lock.Ends(), n.Sides.Ends(), n.Said.Until, n.Tick.Until} {
		if end != 0 && (first == 0 || end < first) {
			first = end
		}
	}
	return first
}

// Reset makes the name as the zero Name, for reuse: it keeps memory.
func (n *Name) Reset() {
	l := n.Lock
	l.Reset()
	*n = Name{Lock: l}
}

// StepOf returns the step of a request by a session, with the name as its World. The store's clock counts from the Unix
// epoch.
func (n *Name) StepOf(name string, by Session, now Time) *Step {
	s := &Step{World: &world{n, now}, Name: name, Now: now, By: by, Wall: now.Milliseconds()}
	n.Begin(s)
	return s
}

// Begin begins a step: it ends what is over.
func (n *Name) Begin(s *Step) {
	now := s.Now
	over := func(until Time) bool { return now >= until }
	n.Watches = slices.DeleteFunc(n.Watches, func(w Watch) bool { return over(w.Until) })
	n.Did = slices.DeleteFunc(n.Did, func(d Did) bool { return over(d.Until) })
	if over(n.Said.Until) {
		n.Said = Said{}
	}
	if over(n.Tick.Until) {
		n.Tick = Tick{}
	}
	if s.NoGrants = s.Down; s.Down {
		return // what is over ends when the store is in service again
	}
	switch n.Data() {
	case LockData:
		n.Lock.Pass(s)
	case SidesData:
		if n.Sides.Pass(s); n.Sides.End == 0 {
			n.Lock.Ask(s, "")
		}
	}
}

// For makes s a step of the given data: nothing is granted if other data has the name.
func (n *Name) For(s *Step, d Data) *Step {
	has := n.Data()
	s.NoGrants = s.Down || has != NoData && has != d
	return s
}

// Delete removes the data of a name as another program would: nothing is released, and nobody is served.
func (n *Name) Delete(s *Step) {
	n.Tick = Tick{}
	switch n.Data() {
	case NoData:
		return
	case LockData:
		n.Lock.Delete(n.For(s, LockData))
		return
	case SidesData:
		n.Sides.Delete(n.For(s, SidesData))
		return
	case CountData:
		n.Permits.Counts, n.Permits.N = false, 0 // permits in use are not the count's
	}
	n.Foreign = false
	for _, k := range []backend.Kind{backend.KindCountDownLatch, backend.KindCountingSemaphore, backend.KindSemaphore} {
		s.tell(Notice{What: Changed, Topic: s.topic(k), All: true})
	}
}

// Remembered returns what a request came to that is remembered.
func (n *Name) Remembered(id string) (took int64, is bool) {
	at := slices.IndexFunc(n.Did, func(d Did) bool { return d.ID == id })
	if at < 0 {
		return 0, false
	}
	return n.Did[at].Took, true
}

// Remember notes what the request of a step came to, for [backend.Remembered].
func (n *Name) Remember(s *Step, id string, took int64) {
	n.Did = slices.DeleteFunc(n.Did, func(d Did) bool { return d.ID == id })
	n.Did = append(n.Did, Did{id, took, s.By, s.Now + backend.Remembered})
}

// Forget removes the entries of a session that has ended, and its Watch.
func (n *Name) Forget(s *Step, x Session) {
	n.Watches = slices.DeleteFunc(n.Watches, func(w Watch) bool { return w.Session == x })
	n.Lock.Forget(x)
	n.Sides.Forget(n.For(s, SidesData), x)
	n.Permits.Forget(n.For(s, CountData), x)
}

// Has reports whether a session watches the name, or has an entry.
func (n *Name) Has(x Session) bool {
	waits := func(w Waiter) bool { return w.Session == x }
	return slices.ContainsFunc(n.Watches, func(w Watch) bool { return w.Session == x }) ||
		slices.ContainsFunc(n.Lock.Queue, func(e Entry) bool { return e.Session == x }) ||
		slices.ContainsFunc(n.Sides.Line, waits) || slices.ContainsFunc(n.Permits.Line, waits)
}

// To returns the sessions that a notice is for, each once.
func (n *Name) To(x *Notice) (to []Session) {
	to = append(to, x.To...)
	for _, w := range n.Watches {
		if (x.All || x.Strangers && !w.Enrols) && w.has(x.Topic) && !slices.Contains(to, w.Session) {
			to = append(to, w.Session)
		}
	}
	return to
}

// has reports whether a session watches a topic.
func (w *Watch) has(t backend.Topic) bool {
	t.Name = ""
	return slices.Contains(w.Topics, t)
}

// world is a name, as a step sees it.
type world struct {
	n   *Name
	now Time
}

// Hears implements [World].
func (w *world) Hears(x Session, t backend.Topic) bool {
	at := slices.IndexFunc(w.n.Watches, func(o Watch) bool { return o.Session == x })
	return at >= 0 && w.n.Watches[at].Enrols && w.n.Watches[at].has(t)
}

// Watched implements [World].
func (w *world) Watched(t backend.Topic) bool {
	return slices.ContainsFunc(w.n.Watches, func(o Watch) bool { return o.has(t) })
}

// Strangers implements [World].
func (w *world) Strangers(t backend.Topic, but Session) bool {
	return slices.ContainsFunc(w.n.Watches, func(o Watch) bool { return o.Session != but && !o.Enrols && o.has(t) })
}

// Draw implements [World]. The first token is the time in milliseconds, so that tokens rise over the removal of a name.
func (w *world) Draw(string) int64 {
	if w.n.Token++; w.n.Token == 1 {
		w.n.Token = max(w.now.Milliseconds(), 1)
	}
	return w.n.Token
}

// Drawn implements [World].
func (w *world) Drawn(string) int64 { return w.n.Token }
