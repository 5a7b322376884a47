package pubsub

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// Times and limits of subscriptions.
const (
	// Linger is how long a channel stays subscribed after its last Unwatch, so a name with frequent
	// waits is not subscribed each time.
	Linger = 50 * time.Millisecond
	// Silence is how long a connection with channels may be silent before a Ping. Patience is how
	// long the answer to a command may take.
	Silence  = 10 * time.Second
	Patience = 5 * time.Second
	// IdleClose is how long a connection without channels is kept.
	IdleClose = 30 * time.Second
	// The pause before dialling again doubles from the first to the last, and is shortened by up to
	// half at random, so the processes of a fleet do not return at once.
	FirstPause = 50 * time.Millisecond
	LastPause  = 3 * time.Second
	// SubscribeBatch bounds the number of channels in a SUBSCRIBE or UNSUBSCRIBE.
	SubscribeBatch = 1000
)

var (
	errSilent  = errors.New("the subscription connection gave no sign of life")
	errDemoted = errors.New("the server of the subscription connection may be a replica now")
)

// subscriptions keeps one subscription connection for all watched topics. The connection is
// opened when it is first needed, and closed when it had no channel for IdleClose. One goroutine, run,
// sends SUBSCRIBE and UNSUBSCRIBE for the difference between wanted and subscribed channels, many
// channels in one command; a goroutine of the adapter reads. The number of goroutines and connections
// does not grow with the topics.
//
// With sharded pub/sub there is one subscriptions for each node of the cluster, and shards assigns the
// channels.
type subscriptions struct {
	Config
	shards *shards // nil without sharded pub/sub

	loop

	mu       sync.Mutex
	channels map[string]*channel
	watched  int           // the number of channels with topics
	todo     []string      // channels to subscribe, or whose fresh topics are to be told
	left     []leftChannel // channels whose last topic was unwatched, oldest first
	trial    *channel      // the suspect that was subscribed last; nil if none was
	conn     *connection   // nil if there is none
	pauses   int           // the number of connections in a row that failed
	redialAt time.Time
	demoted  time.Time // the last call of Demoted
}

// channel is a channel that is watched, or that is not watched any more and may still be subscribed.
type channel struct {
	topics []backend.Topic // watched; copied on write
	fresh  []backend.Topic // topics for which Watching is still to be called
	// sent: SUBSCRIBE, not UNSUBSCRIBE, was the last command sent for the channel. unanswered is the
	// number of SUBSCRIBEs without a confirmation. All must be confirmed: the confirmation of an earlier
	// SUBSCRIBE says nothing about the state after a later UNSUBSCRIBE and SUBSCRIBE.
	sent       bool
	unanswered int
	// suspect: a SUBSCRIBE was refused because of this channel or one beside it. A suspect is subscribed by a command of
	// its own, so that a refusal is its own; without sharded pub/sub also while no other SUBSCRIBE is unanswered, because
	// there a refusal does not name its command.
	suspect bool
	retryAt time.Time // with sharded pub/sub: when to subscribe a channel again that was refused alone
	leftAt  time.Time // the last time that its last topic was unwatched
}

// request notes that a SUBSCRIBE of the channel is sent.
func (ch *channel) request() {
	ch.sent = true
	ch.unanswered++
}

// live reports whether the server has confirmed the last SUBSCRIBE.
func (c *channel) live() bool { return c.sent && c.unanswered == 0 }

type leftChannel struct {
	name string
	at   time.Time
}

// New makes a watcher with a single connection.
func New(c Config) Watcher { return newSubscriptions(c) }

func newSubscriptions(c Config) *subscriptions {
	return &subscriptions{Config: c, loop: newLoop(), channels: map[string]*channel{}}
}

func (s *subscriptions) Watch(name string, t backend.Topic) { s.WatchTogether([]Watch{{name, t}}) }

func (s *subscriptions) WatchTogether(all []Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	for _, w := range all {
		s.add(w.Channel, w.Topic)
	}
	if !s.started {
		s.started = true
		go s.run()
	}
	s.signal()
}

// add is called with s.mu held.
func (s *subscriptions) add(name string, t backend.Topic) {
	c := s.channels[name]
	if c == nil {
		c = &channel{}
		s.channels[name] = c
	}
	if len(c.topics) == 0 {
		s.watched++
	}
	if !slices.Contains(c.topics, t) {
		c.topics = append(slices.Clip(c.topics), t)
	}
	if beside := s.Beside != nil && s.Beside(t); !beside && !slices.Contains(c.fresh, t) {
		c.fresh = append(c.fresh, t)
	}
	s.todo = append(s.todo, name)
}

// resubscribe watches a channel for the topics that are new here, and subscribes it if it is not subscribed any more.
func (s *subscriptions) resubscribe(name string, topics []backend.Topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range topics {
		if c := s.channels[name]; c == nil || !slices.Contains(c.topics, t) {
			s.add(name, t)
		}
	}
	s.todo = append(s.todo, name)
	s.signal()
}

func (s *subscriptions) Unwatch(name string, t backend.Topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[name]
	if c == nil {
		return
	}
	isT := func(o backend.Topic) bool { return o == t }
	c.fresh = slices.DeleteFunc(c.fresh, isT)
	if !slices.Contains(c.topics, t) {
		return
	}
	c.topics = slices.DeleteFunc(slices.Clone(c.topics), isT)
	if len(c.topics) > 0 {
		return
	}
	s.watched--
	c.leftAt = time.Now()
	s.left = append(s.left, leftChannel{name, c.leftAt})
	if len(s.left) == 1 {
		s.signal()
	}
}

// Listens implements [Watcher].
func (s *subscriptions) Listens(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[name]
	return c != nil && c.live() && s.conn != nil && !s.conn.down
}

// Demoted implements [Watcher].
func (s *subscriptions) Demoted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.demoted = time.Now()
	if s.conn != nil {
		s.signal()
	}
}

// Close implements [Watcher].
func (s *subscriptions) Close() {
	s.mu.Lock()
	s.closed = true
	started := s.started
	s.mu.Unlock()
	s.cancel()
	if started {
		<-s.ended
	}
}

// run is the goroutine that owns the connection: no other opens the connection, sends on it or closes it.
func (s *subscriptions) run() {
	defer close(s.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for s.ctx.Err() == nil {
		s.step()
		timer.Reset(time.Until(s.nextLook()))
		select {
		case <-s.ctx.Done():
		case <-s.wake:
		case <-timer.C:
		}
	}
	s.mu.Lock()
	c := s.conn
	s.conn = nil
	s.mu.Unlock()
	if c != nil {
		_ = c.sub.Close()
	}
}

// step drops a broken connection, dials, calls Watching, subscribes, unsubscribes and pings, as far as due.
func (s *subscriptions) step() {
	if c, err := s.broken(); c != nil {
		s.drop(c, err)
	}
	if s.dialDue() {
		s.dial()
	}
	s.mu.Lock()
	c := s.conn
	if c == nil {
		s.todo = nil // dial makes a new list
		s.forgetLeft()
		s.mu.Unlock()
		return
	}
	now := time.Now()
	subscribe, suspects, confirm := s.takeTodo(now)
	unsubscribe := s.takeLeft(now)
	s.mu.Unlock()

	for _, t := range confirm {
		s.Watching(t)
	}
	if !s.send(c, subscribe, SubscribeBatch, c.sub.Subscribe) || !s.send(c, suspects, 1, c.sub.Subscribe) ||
		!s.send(c, unsubscribe, SubscribeBatch, c.sub.Unsubscribe) {
		return
	}
	s.mu.Lock()
	now = time.Now()
	ask := s.watched > 0 && c.asked.IsZero() && now.Sub(c.heard) >= Silence
	idle := len(s.channels) == 0 && now.Sub(c.emptySince) >= IdleClose
	if ask {
		c.asked = now
	}
	if idle {
		s.conn = nil
	}
	s.mu.Unlock()
	switch {
	case idle:
		_ = c.sub.Close()
	case ask:
		ctx, cancel := context.WithTimeout(s.ctx, Patience)
		defer cancel()
		if err := c.sub.Ping(ctx); err != nil {
			s.drop(c, err)
		}
	}
}

// nextLook returns when the next step is due if nothing wakes run before.
func (s *subscriptions) nextLook() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := time.Now().Add(time.Hour)
	earlier := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	c := s.conn
	if c == nil {
		if s.watched > 0 {
			earlier(s.redialAt)
		}
		return next
	}
	switch {
	case c.down:
		earlier(time.Now())
	case !c.asked.IsZero():
		earlier(c.asked.Add(Patience))
	case s.watched > 0:
		earlier(c.heard.Add(Silence))
	}
	if c.stale() {
		earlier(c.opened.Add(LastPause))
	}
	if len(s.left) > 0 {
		earlier(s.left[0].at.Add(Linger))
	}
	if len(s.channels) == 0 {
		earlier(c.emptySince.Add(IdleClose))
	}
	for _, name := range s.todo {
		if ch := s.channels[name]; ch != nil && !ch.retryAt.IsZero() {
			earlier(ch.retryAt)
		}
	}
	return next
}

// broken returns the connection, and the reason, if the connection is to be dropped.
func (s *subscriptions) broken() (*connection, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch c := s.conn; {
	case c == nil:
		return nil, nil
	case c.down:
		return c, c.err
	case !c.asked.IsZero() && time.Since(c.asked) >= Patience:
		return c, errSilent
	case c.stale() && time.Since(c.opened) >= LastPause:
		return c, errDemoted
	default:
		return nil, nil
	}
}

func (s *subscriptions) dialDue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn == nil && s.watched > 0 && !time.Now().Before(s.redialAt)
}

// anyName returns the name of a watched topic; "" if there is none.
func (s *subscriptions) anyName() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ch := range s.channels {
		if len(ch.topics) > 0 {
			return ch.topics[0].Name
		}
	}
	return ""
}

// dial opens a connection, and puts all watched channels on the list to subscribe.
func (s *subscriptions) dial() {
	ctx, cancel := context.WithTimeout(s.ctx, Patience)
	defer cancel()
	c := &connection{s: s, dialled: time.Now()}
	sub, err := s.openWithin(ctx, c)
	if err != nil {
		s.retreat(err, nil)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.sub = sub
	c.opened = time.Now()
	c.heard, c.emptySince = c.opened, c.opened
	s.conn = c
	s.todo = s.todo[:0]
	for name, ch := range s.channels {
		if len(ch.topics) > 0 {
			s.todo = append(s.todo, name)
		}
	}
}

// openWithin calls Open, and returns an error when ctx ends, even if Open does not return then. A connection that
// comes later is closed.
func (s *subscriptions) openWithin(ctx context.Context, c *connection) (Subscription, error) {
	got, failed := make(chan Subscription), make(chan error, 1)
	go func() {
		sub, err := s.Open(ctx, c)
		if err != nil {
			failed <- err
			return
		}
		select {
		case got <- sub:
		case <-ctx.Done():
			_ = sub.Close()
		}
	}()
	select {
	case sub := <-got:
		return sub, nil
	case err := <-failed:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// drop closes a connection that failed, and forgets what was subscribed.
func (s *subscriptions) drop(c *connection, err error) {
	denied := s.Denied != nil && s.Denied(err)
	var refused []*channel
	s.mu.Lock()
	s.conn, s.trial = nil, nil
	if c.confirmed && time.Since(c.opened) >= LastPause {
		s.pauses = 0 // the connection worked for a while
	}
	for name, ch := range s.channels {
		if denied && ch.unanswered > 0 {
			ch.suspect = true
			refused = append(refused, ch)
		}
		ch.sent, ch.unanswered, ch.fresh = false, 0, nil
		if len(ch.topics) == 0 {
			delete(s.channels, name)
		}
	}
	s.todo, s.left = nil, nil
	s.mu.Unlock()
	_ = c.sub.Close()
	s.retreat(err, refused)
}

// retreat sets the time of the next dial. If err is not temporary, it calls Failed's function for all watched topics.
// If the server refused one of the channels in refused, it calls the function only for the topics of that channel: the
// next connections find out which one it is.
func (s *subscriptions) retreat(err error, refused []*channel) {
	tell := s.Failed(err)
	var topics []backend.Topic
	s.mu.Lock()
	longest := LastPause
	if len(refused) > 0 {
		longest = lastSearch // the other channels are interrupted meanwhile
	}
	pause := min(FirstPause<<min(s.pauses, 10), longest)
	s.pauses++
	s.redialAt = time.Now().Add(pause - rand.N(pause/2))
	if tell != nil && s.ctx.Err() == nil && len(refused) < 2 {
		if len(refused) == 0 {
			refused = slices.Collect(maps.Values(s.channels))
		}
		for _, ch := range refused {
			topics = append(topics, ch.topics...)
		}
	}
	s.mu.Unlock()
	for _, t := range topics {
		tell(t)
	}
	if s.shards != nil {
		s.shards.broken(s)
	}
}

// takeTodo empties the list, except for suspects that are not subscribed yet and channels that wait for the answer to a
// suspect. It returns the channels to subscribe now, the suspects to subscribe now, each by a command of its own, and
// the topics of subscribed channels for which Watching is to be called.
func (s *subscriptions) takeTodo(now time.Time) (subscribe, suspects []string, confirm []backend.Topic) {
	trying := s.trial != nil && s.trial.unanswered > 0
	var later []string
	for _, name := range s.todo {
		ch := s.channels[name]
		switch {
		case ch == nil || len(ch.topics) == 0:
		case !ch.sent && ch.suspect && s.shards != nil && !now.Before(ch.retryAt):
			ch.request()
			suspects = append(suspects, name)
		case !ch.sent && (trying || ch.suspect):
			later = append(later, name)
		case !ch.sent:
			ch.request()
			subscribe = append(subscribe, name)
		case ch.live():
			confirm = append(confirm, ch.fresh...)
			ch.fresh = nil
		}
	}
	if s.todo = later; len(later) > 0 && s.shards == nil && !s.awaits() {
		s.trial = s.channels[later[0]]
		s.trial.request()
		suspects = append(suspects, later[0])
	}
	return subscribe, suspects, confirm
}

// awaits reports whether a SUBSCRIBE is unanswered.
func (s *subscriptions) awaits() bool {
	for _, ch := range s.channels {
		if ch.unanswered > 0 {
			return true
		}
	}
	return false
}

// takeLeft returns the channels to unsubscribe: Linger has passed since their last Unwatch.
func (s *subscriptions) takeLeft(now time.Time) (unsubscribe []string) {
	due := Linger
	if len(s.left) > 0 && now.Sub(s.left[0].at) >= Linger {
		due = Linger / 2 // channels that are due soon go in the same command
	}
	for len(s.left) > 0 && now.Sub(s.left[0].at) >= due {
		l := s.left[0]
		s.left = s.left[1:]
		ch := s.channels[l.name]
		if ch == nil || len(ch.topics) > 0 || ch.leftAt != l.at {
			continue
		}
		if ch.sent {
			ch.sent = false
			unsubscribe = append(unsubscribe, l.name)
		}
		if ch.unanswered == 0 {
			s.remove(l.name)
		}
	}
	if len(s.left) == 0 {
		s.left = nil
	}
	return unsubscribe
}

// forgetLeft removes the channels that are not watched any more. It is called while there is no connection.
func (s *subscriptions) forgetLeft() {
	for _, l := range s.left {
		if ch := s.channels[l.name]; ch != nil && len(ch.topics) == 0 {
			s.remove(l.name)
		}
	}
	s.left = nil
}

func (s *subscriptions) remove(name string) {
	delete(s.channels, name)
	if len(s.channels) == 0 {
		s.channels = map[string]*channel{} // a map never shrinks
		if s.conn != nil {
			s.conn.emptySince = time.Now()
		}
	}
}

// send sends commands for names, each for so many of them at most. It reports false if c failed and was dropped.
func (s *subscriptions) send(c *connection, names []string, most int,
	do func(context.Context, ...string) error) bool {
	for batch := range slices.Chunk(names, most) {
		s.mu.Lock()
		if c.asked.IsZero() {
			c.asked = time.Now()
		}
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(s.ctx, Patience)
		err := do(ctx, batch...)
		cancel()
		if err != nil {
			s.drop(c, err)
			return false
		}
	}
	return true
}

// connection is a subscription connection; as a ShardEvents it receives the messages of the adapter. All
// fields except sub are guarded by the mutex of subscriptions.
type connection struct {
	s          *subscriptions
	sub        Subscription
	heard      time.Time // the last sign of life
	asked      time.Time // when the first command since the last sign of life was sent; zero if none was
	dialled    time.Time // when the dial began
	opened     time.Time
	emptySince time.Time // since when there is no channel
	confirmed  bool      // the server has confirmed a subscription
	down       bool
	err        error
}

// stale reports whether Demoted was called since the dial began.
func (c *connection) stale() bool { return !c.s.demoted.Before(c.dialled) }

func (c *connection) alive() {
	c.heard = time.Now()
	c.asked = time.Time{}
}

func (c *connection) Subscribed(name string) {
	s := c.s
	s.mu.Lock()
	c.alive()
	ch := s.channels[name]
	if s.conn != c || ch == nil {
		s.mu.Unlock()
		return
	}
	c.confirmed = true
	if ch.unanswered > 0 {
		ch.unanswered--
	}
	var topics []backend.Topic
	switch {
	case ch.live():
		topics = ch.topics
		ch.fresh, ch.suspect, ch.retryAt = nil, false, time.Time{}
	case ch.unanswered == 0 && len(ch.topics) == 0:
		s.remove(name)
	}
	if len(s.todo) > 0 {
		s.signal() // for the next suspect
	}
	s.mu.Unlock()
	for _, t := range topics {
		s.Watching(t)
	}
}

// Unsubscribed notes that the server ended a live subscription: the slot has moved. It ignores the confirmation of an
// UNSUBSCRIBE: the channel is not live then, even if it is watched again, since its new SUBSCRIBE is unanswered.
func (c *connection) Unsubscribed(name string) {
	s := c.s
	s.mu.Lock()
	c.alive()
	ch := s.channels[name]
	moved := s.conn == c && ch != nil && ch.live()
	if moved {
		ch.sent = false
	}
	s.mu.Unlock()
	if moved && s.shards != nil {
		s.shards.moved(s, []string{name})
	}
}

// Refused gives the refused channels back to shards, which looks for their node. If err is not temporary, it calls
// Failed's function for their topics.
//
// A command that was denied because of one of its channels says nothing about the node, and nothing about the other
// channels: each is subscribed again, alone. Failed's function is called for a channel that was denied alone; the
// channel is tried again later.
func (c *connection) Refused(names []string, err error) {
	s := c.s
	tell := s.Failed(err)
	denied := s.Denied != nil && s.Denied(err)
	if denied && len(names) > 1 {
		tell = nil
	}
	var moved []string
	var topics []backend.Topic
	s.mu.Lock()
	c.alive()
	for _, name := range names {
		ch := s.channels[name]
		if s.conn != c || ch == nil {
			continue
		}
		if ch.unanswered > 0 {
			ch.unanswered--
		}
		switch {
		case ch.live():
			ch.sent = false
			if tell != nil {
				topics = append(topics, ch.topics...)
			}
			if !denied {
				moved = append(moved, name)
				continue
			}
			ch.suspect = true
			if len(names) == 1 {
				ch.retryAt = time.Now().Add(lastSearch)
			}
			s.todo = append(s.todo, name)
			s.signal()
		case ch.unanswered == 0 && len(ch.topics) == 0:
			s.remove(name)
		}
	}
	s.mu.Unlock()
	for _, t := range topics {
		tell(t)
	}
	if len(moved) > 0 && s.shards != nil {
		s.shards.moved(s, moved)
	}
}

func (c *connection) Message(name, payload string) {
	s := c.s
	s.mu.Lock()
	c.alive()
	var topics []backend.Topic
	if ch := s.channels[name]; s.conn == c && ch != nil {
		topics = ch.topics
	}
	s.mu.Unlock()
	for _, t := range topics {
		s.Message(t, payload)
	}
}

func (c *connection) Alive() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.alive()
}

func (c *connection) Down(err error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.down, c.err = true, err
	c.s.signal()
}
