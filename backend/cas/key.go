package cas

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// key is a name's key: what the session knows of its value, and the requests that wait to be applied to the value.
type key struct {
	name, key string
	// pend are requests that are not under way. Session.mu guards pend, busy, watched and dirty.
	pend []*call
	// busy: the key is in Session.ready, or a lane has it. Only that lane uses the fields below.
	busy    bool
	watched map[backend.Topic]*watch
	// dirty: the value may say that the session watches what it does not watch any more.
	dirty bool
	// cur is the value as last seen, and seen when its version was seen for the first time.
	cur  Swapped
	seen time.Time
	// time is the key's own, for a store without a clock.
	time keyTime
	// tries counts the conflicts since the last success.
	tries int
	// kept counts the swaps on end that were not done because a transaction of the store keeps the value.
	kept int
	// doubt: a swap has an unknown outcome. It may still be carried out, until another swap has been.
	doubt bool
	// mine: the value has something of the session that must not outlive it.
	mine bool
	// polled is what was seen at the last poll.
	polled polled
}

// watch is a topic that the session watches.
type watch struct{ told bool }

// polled is what those wait for who have no entry, and ask only when they are told.
type polled struct {
	counts bool
	count  int64
	said   record.Said
}

// call is a request: a step of the name. Session.mu is locked while its Then is called.
type call struct {
	record.Call
	done chan struct{}
}

// hashed begins the keys that are hashes of names.
const hashed = "sha256:"

// KeyOf returns the key of a name: the name, or its hash if it is too long or has control characters. It is also for
// code of a store that looks at the lock of a name by itself.
func KeyOf(name string) string {
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	if len(name) <= 200 && utf8.ValidString(name) && !strings.ContainsFunc(name, control) &&
		!strings.HasPrefix(name, hashed) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return hashed + hex.EncodeToString(sum[:])
}

// flight is a swap of a key under way, with the calls that it carries out.
type flight struct {
	*key
	calls []*call
	sent  time.Time
	swap  Swap
	// planned: the calls were applied to the value.
	planned bool
	// own are notices to the session itself, told the topics that are confirmed if the flight succeeds.
	own  []record.Notice
	told []backend.Topic
	// number is that of the write. It is kept in lost, and needs in version, if its outcome is unknown; asks: the flight
	// only asks what came of it.
	number, lost uint64
	version      int64
	asks         bool
}

// plan applies a flight's calls to the value as last seen, and makes the swap.
func (x *session) plan(t *flight) {
	t.swap, t.planned = Swap{Key: t.key.key, Version: Look}, false
	store, known := x.now(t.key)
	if t.asks || !known {
		return
	}
	t.own, t.told, t.planned = nil, nil, true
	n, err := decode(&t.cur)
	if err != nil {
		for _, c := range t.calls {
			if c.Err = unreadable(err); c.Lenient && errors.Is(err, backend.ErrWrongKind) {
				n := new(record.Name)
				c.Err = c.Run(n, x.step(n, t.name, t.key, record.Moment(store)))
			}
		}
		return
	}
	now := record.Moment(store)
	t.number = x.wrote.Add(1)
	n.Wrote = record.Wrote{By: x.id, Number: t.number}
	if t.name != t.key.key {
		n.Name = t.name
	}
	was := n.Encode(nil, now)
	s := x.step(n, t.name, t.key, now)
	x.takeNotices(t, n, s)
	for _, c := range t.calls {
		c.Err = nil
		if c.Run != nil {
			c.Err = c.Run(n, s)
		}
		x.takeNotices(t, n, s)
	}
	t.told = x.watches(t.key, n, now)
	t.mine = n.Has(x.id)
	if is := n.Encode(nil, now); t.doubt || len(t.swap.Notices) > 0 || !slices.Equal(is, was) {
		t.swap.Stamp = store
		x.write(t, n, is, now)
	}
}

// write makes the flight's swap a write of a name, which is value in bytes.
func (x *session) write(t *flight, n *record.Name, value []byte, now record.Time) {
	t.swap.Version = t.cur.Version
	if n.Empty(now) && n.Token == 0 && len(n.Rest) == 0 && !t.doubt {
		return // the value is removed
	}
	t.swap.Value = value
	if most := x.limits.Value; len(t.swap.Value) > most {
		for _, c := range t.calls {
			c.Err = errors.Join(c.Err, &backend.Fault{
				Err:    fmt.Errorf("cas: the data of this name would have %d bytes, more than %d", len(t.swap.Value), most),
				Remedy: "fewer clients must wait for it, or hold it",
			})
		}
		t.swap.Version, t.swap.Value, t.swap.Notices, t.own, t.told = Look, nil, nil, nil, nil
		return
	}
	if len(n.Lock.Owners) == 1 {
		t.swap.Owner = n.Lock.Owners[0].ID
	}
}

// takeNotices sorts the notices that a step has left.
func (x *session) takeNotices(t *flight, n *record.Name, s *record.Step) {
	for i := range s.Notices {
		if s.Notices[i].What == record.Changed {
			continue // a hint, which no waiter needs
		}
		for _, to := range n.To(&s.Notices[i]) {
			if to == x.id {
				t.own = append(t.own, s.Notices[i])
			} else {
				t.swap.Notices = append(t.swap.Notices, Notice{sessionName(to), noticeText(t.key.key, &s.Notices[i])})
			}
		}
	}
	s.Notices = s.Notices[:0]
}

// rowKept is how long a session counts as alive that does not renew its row, and rowRenewed the time left from which on
// it renews the row.
const (
	rowKept    = time.Minute
	rowRenewed = 30 * time.Second
)

// watches puts what the session watches into the name. It returns the topics to be confirmed.
func (x *session) watches(k *key, n *record.Name, now record.Time) (told []backend.Topic) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil
	}
	row := record.Watch{Session: x.id, Enrols: x.queue != nil, Until: now + rowKept}
	for t, w := range k.watched {
		if !w.told {
			told = append(told, t)
		}
		t.Name = ""
		row.Topics = append(row.Topics, t)
	}
	k.dirty = false
	slices.SortFunc(row.Topics, byTopic)
	at := slices.IndexFunc(n.Watches, func(w record.Watch) bool { return w.Session == x.id })
	switch {
	case len(row.Topics) == 0 && at >= 0:
		n.Watches = slices.Delete(n.Watches, at, at+1)
	case len(row.Topics) == 0:
	case at < 0:
		n.Watches = append(n.Watches, row)
	case !slices.Equal(n.Watches[at].Topics, row.Topics) || n.Watches[at].Until < now+rowRenewed:
		n.Watches[at] = row
	}
	return told
}

func byTopic(a, b backend.Topic) int {
	if a.Kind != b.Kind {
		return int(a.Kind) - int(b.Kind)
	}
	return strings.Compare(a.Owner, b.Owner)
}

// settle takes in what came of a flight. It reports whether the flight's calls have been answered.
func (x *session) settle(t *flight, out *Swapped, err error) bool {
	if err == nil {
		err = out.Err
	}
	switch {
	case err != nil && t.asks:
		x.answer(t, unknown(err))
		return true
	case err != nil && t.swap.Version != Look && backend.FaultOf(err).MayHaveRun:
		t.asks, t.doubt, t.lost, t.version = true, true, t.number, t.swap.Version
		return false
	case err != nil:
		x.answer(t, err)
		return true
	case out.Done:
		out.Value, t.doubt = t.swap.Value, false
	case t.lost != 0 && x.isMine(out, t.lost): // the lost write
		t.doubt = false
	case t.asks && out.Version != t.version:
		t.doubt = false // the version that the lost write needs is gone
		t.see(out)
		x.answer(t, unknown(errors.New("cas: the reply to a write was lost, and another client has written since")))
		return true
	case t.swap.Version > None && out.Version == t.swap.Version && t.planned:
		t.kept++
		t.see(out)
		return false
	case t.asks || !t.planned || t.swap.Version != Look || out.Version != t.cur.Version:
		if t.planned {
			t.tries++
		}
		t.asks, t.kept = false, 0
		t.see(out)
		return false
	}
	t.see(out)
	x.answer(t, nil)
	return true
}

// isMine reports whether a value is that of the session's write of a number.
func (x *session) isMine(out *Swapped, number uint64) bool {
	n, err := decode(out)
	return err == nil && n.Wrote == record.Wrote{By: x.id, Number: number}
}

// see takes in a value.
func (k *key) see(out *Swapped) {
	now := time.Now()
	if at, known := k.time.at(now); !known || k.cur.Version != out.Version || at < out.Now {
		k.time.time, k.time.when = out.Now, now
	}
	if k.cur.Version != out.Version || k.seen.IsZero() {
		k.seen = now
	}
	k.cur = *out
	k.cur.Done = false
}

// answer ends the flight's calls, and tells the session what it left itself.
func (x *session) answer(t *flight, err error) {
	t.tries, t.kept = 0, 0
	x.mu.Lock()
	defer x.mu.Unlock()
	if err == nil {
		for i := range t.own {
			x.hearNotice(&t.own[i], t.sent)
		}
		for _, topic := range t.told {
			if w := t.watched[topic]; w != nil && x.listening {
				w.told = true
				x.tell(event{watching, topic})
			}
		}
	}
	for _, c := range t.calls {
		if err != nil {
			c.Err = err
		}
		if c.Then != nil {
			c.Then(c.Err)
		}
		close(c.done)
	}
	x.next(t.key)
}

// unknown makes err one of an operation that may have taken effect.
func unknown(err error) error {
	f := backend.FaultOf(err)
	f.MayHaveRun = true
	return &f
}

// unreadable is the error of a call for a name whose value cannot be read.
func unreadable(err error) error {
	if errors.Is(err, record.ErrNewer) {
		return &backend.Fault{Err: fmt.Errorf("cas: %w", err), Remedy: "upgrade mortise in this process"}
	}
	return &backend.Fault{Err: fmt.Errorf("cas: %w", err), Remedy: "choose another name, or delete the data"}
}

// send sends a batch of flights. It returns those whose calls have no answer yet.
func (x *session) send(ctx context.Context, flights []*flight) (left []*flight) {
	in, out := make([]Swap, len(flights)), make([]Swapped, len(flights))
	sent := time.Now()
	for i, t := range flights {
		if t.lost == 0 { // otherwise it may have been carried out since then
			t.sent = sent
		}
		x.plan(t)
		in[i] = t.swap
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	err := x.driver.Swap(ctx, in, out)
	cancel()
	got := time.Now()
	for i := range flights {
		if err == nil && out[i].Err == nil {
			x.note(reading{sent, got, out[i].Now})
		}
	}
	for i, t := range flights {
		if !x.settle(t, &out[i], err) {
			left = append(left, t)
		}
	}
	return left
}

// patience bounds a request to the store.
const patience = 5 * time.Second
