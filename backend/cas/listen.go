package cas

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// A session listens while it watches something. A topic is confirmed when the session listens and the value of its name
// says that it watches: from then on each release of the name tells the session. Notices only make it quick: every
// second the session looks at the names that it watches, and asks anew where it is not in the value any more.

const (
	// poll is how often a session looks at the names that it watches.
	poll = time.Second
	// redial and redialMost are the shortest and the longest pause before a session listens again.
	redial     = 20 * time.Millisecond
	redialMost = time.Second
)

// Subscribe implements [backend.Store].
func (x *session) Subscribe(t backend.Topic) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return
	}
	k := x.keyOf(t.Name)
	if k.watched == nil {
		k.watched = make(map[backend.Topic]*watch)
	}
	if k.watched[t] == nil {
		x.topics++
	}
	k.watched[t] = new(watch)
	if x.listener == nil {
		ctx, cancel := context.WithCancel(x.ctx)
		x.listener = cancel
		x.running.Go(func() { x.listen(ctx) })
		x.running.Go(func() { x.polls(ctx) })
	}
	if x.listening {
		x.touch(k)
	}
}

// Unsubscribe implements [backend.Store]. The value says so with the next swap.
func (x *session) Unsubscribe(t backend.Topic) {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.keys[KeyOf(t.Name)]
	if k == nil || k.watched[t] == nil {
		return
	}
	delete(k.watched, t)
	k.dirty = true
	x.topics--
}

// touch has the value of a key say what the session watches, and confirms the topics. Session.mu is locked.
func (x *session) touch(k *key) { x.look(k, func() {}) }

// listen listens, again after each interruption, until ctx ends.
func (x *session) listen(ctx context.Context) {
	for pause := redial; ; pause = min(2*pause, redialMost) {
		err := x.driver.Listen(ctx, sessionName(x.id), func(h Heard) {
			if h.Text == "" {
				pause = redial
				x.listens(ctx, true, nil)
				return
			}
			x.hear(h)
		})
		x.listens(ctx, false, err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// listens notes whether the session listens; err is why it does not. All topics are to be confirmed again. A listener
// whose ctx has ended says nothing: another may have begun.
func (x *session) listens(ctx context.Context, is bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed || ctx.Err() != nil {
		return
	}
	failer, _ := x.handler.(backend.WatchFailer)
	x.listening = is
	for _, k := range x.keys {
		for t, w := range k.watched {
			w.told = false
			if f := backend.FaultOf(err); !is && !f.Temporary && failer != nil {
				x.tell(event{func(_ backend.Handler, t backend.Topic) { failer.WatchFailed(t, err) }, t})
			}
		}
		if is && len(k.watched) > 0 {
			x.touch(k)
		}
	}
}

// polls looks at the names that the session watches now and then, until nothing is watched any more.
func (x *session) polls(ctx context.Context) {
	idle := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(poll):
		}
		x.mu.Lock()
		if x.topics > 0 {
			idle = false
		} else if idle {
			x.listener()
			x.listener, x.listening = nil, false
			x.mu.Unlock()
			return
		} else {
			idle = true
		}
		for _, k := range x.keys {
			if len(k.watched) > 0 || k.dirty {
				x.look(k, func() { x.missed(k) })
			}
		}
		x.mu.Unlock()
	}
}

// look has a key's value looked at, and calls changed if what it says of a count and of a proclamation is not what it
// was at the last look. Session.mu is locked.
func (x *session) look(k *key, changed func()) {
	var now polled
	run := func(n *record.Name, _ *record.Step) error {
		now = polled{n.Permits.Counts, n.Permits.N, n.Said}
		return nil
	}
	x.queueUp(k, &call{record.Call{Run: run, Lenient: true, Then: func(err error) {
		if err == nil && now != k.polled {
			k.polled = now
			changed()
		}
	}}, make(chan struct{})})
}

// missed has those ask that wait for a count or a proclamation, and ask only when they are told: a notice may be lost.
// Session.mu is locked.
func (x *session) missed(k *key) {
	for t, w := range k.watched {
		if w.told && (t.Kind == backend.KindCountDownLatch || t.Kind == backend.KindProclamation) {
			x.tell(event{watching, t})
		}
	}
}

// noticeText returns a notice as text: fields behind each other, in base64.
func noticeText(key string, n *record.Notice) string {
	b := []byte{byte(n.What), byte(n.Topic.Kind)}
	for _, s := range []string{key, n.Topic.Owner, n.Owner} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	for _, i := range []uint64{n.Entry, uint64(n.After), uint64(n.Token), uint64(n.Lease)} {
		b = binary.AppendUvarint(b, i)
	}
	return base64.RawStdEncoding.EncodeToString(b)
}

var errNotice = errors.New("no notice")

// noticeOf reads a notice.
func noticeOf(text string) (key string, n record.Notice, err error) {
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || len(b) < 2 {
		return "", n, errNotice
	}
	n.What, n.Topic.Kind = record.What(b[0]), backend.Kind(b[1])
	b = b[2:]
	uint := func() uint64 {
		i, size := binary.Uvarint(b)
		if size <= 0 {
			b, err = nil, errNotice
			return 0
		}
		b = b[size:]
		return i
	}
	str := func() string {
		size := uint()
		if size > uint64(len(b)) {
			b, err = nil, errNotice
			return ""
		}
		s := string(b[:size])
		b = b[size:]
		return s
	}
	key, n.Topic.Owner, n.Owner = str(), str(), str()
	n.Entry, n.After, n.Token, n.Lease = uint(), time.Duration(uint()), int64(uint()), time.Duration(uint())
	return key, n, err
}

// hear takes in a notice of another session.
func (x *session) hear(h Heard) {
	at, n, err := noticeOf(h.Text)
	if err != nil {
		return // not of mortise
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.keys[at]
	if k == nil {
		return
	}
	n.Topic.Name = k.name
	x.hearNotice(&n, x.clock.granted(h.Stamp, time.Now()))
}

// hearNotice passes a notice on to the handler. From is when the store made a grant, at the earliest. Session.mu is
// locked.
func (x *session) hearNotice(n *record.Notice, from time.Time) {
	k := x.keys[KeyOf(n.Topic.Name)]
	if k == nil || k.watched[n.Topic] == nil {
		return
	}
	e := event{released, n.Topic}
	entry, after := n.Entry, n.After
	if n.What != record.Released && x.queue == nil {
		return
	}
	switch n.What {
	case record.Granted:
		g := backend.Grant{Owner: n.Owner, Token: n.Token, From: from, Lease: n.Lease}
		e.what = func(_ backend.Handler, t backend.Topic) { x.queue.Granted(t, g) }
	case record.Reserved:
		e.what = func(_ backend.Handler, t backend.Topic) { x.queue.Reserved(t, entry) }
	case record.First:
		e.what = func(_ backend.Handler, t backend.Topic) { x.queue.First(t, entry, after) }
	case record.Wanted:
		e.what = func(_ backend.Handler, t backend.Topic) { x.queue.Wanted(t, entry) }
	}
	x.tell(e)
}
