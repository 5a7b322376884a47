package pubsub

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// lastSearch is the longest pause between two searches for the nodes of slots, while slots
// move or are refused; the first is FirstPause.
const lastSearch = 300 * time.Millisecond

// newsTravels is when it is looked once more after slots moved: the node that was asked
// may not have heard of it. A former master, now a replica, takes subscriptions like a master.
const newsTravels = 2 * time.Second

// shards keeps subscriptions on each node of a cluster that has channels which are
// watched. One goroutine finds the node of a slot that it does not know, and moves channels
// when their slot does: when the server ends their subscription, when it refuses one, when
// a node's connection is lost. A channel that has moved is subscribed anew, so whoever
// watches it is told Watching again, as after any interruption.
//
// Until it is decided that pub/sub is sharded, channels wait. Where it is not, there
// is one place for all, and nothing moves.
//
// Locks are taken in the order shards, subscriptions.
type shards struct {
	Config
	Sharding

	loop
	gone sync.WaitGroup

	mu      sync.Mutex
	decided bool
	all     *subscriptions // where nothing is sharded
	routes  map[string]*route
	slots   map[int]*shardSlot
	nodes   map[string]*subscriptions
	lost    map[int]bool // slots to be found by what is known, or anew
	searches
}

// searches says when the nodes of the slots are to be asked for.
type searches struct {
	search bool      // they are
	pauses int       // how many searches followed each other closely
	last   time.Time // of the last search
	next   time.Time // no search before
	verify time.Time // a search is due then; or zero
}

// route is a channel that is watched.
type route struct {
	topics []backend.Topic
	at     *subscriptions // nil while its node is not known
}

// shardSlot is a slot with channels that are watched.
type shardSlot struct {
	at       *subscriptions // nil while its node is not known
	channels map[string]*route
	moved    bool // what is known about it was wrong
}

// NewSharded makes a watcher with a connection for each node, or a single connection if pub/sub
// turns out not to be sharded.
func NewSharded(c Config, sharding Sharding) Watcher {
	return &shards{
		Config:   c,
		Sharding: sharding,
		loop:     newLoop(),
		routes:   map[string]*route{},
		slots:    map[int]*shardSlot{},
		nodes:    map[string]*subscriptions{},
		lost:     map[int]bool{},
	}
}

func (s *shards) Watch(channel string, t backend.Topic) { s.WatchTogether([]Watch{{channel, t}}) }

func (s *shards) WatchTogether(all []Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if s.all != nil {
		s.all.WatchTogether(all)
		return
	}
	if s.decided {
		all = slices.Clone(all)
		for i := range all {
			all[i].Channel = s.Channel(all[i].Topic)
		}
	}
	s.add(all)
	if !s.started {
		s.started = true
		go s.run()
	}
}

// add is called with s.mu held, for channels of one slot.
func (s *shards) add(all []Watch) {
	slot := s.Slot(all[0].Channel)
	x := s.slots[slot]
	if x == nil {
		x = &shardSlot{channels: map[string]*route{}}
		s.slots[slot] = x
	}
	for _, w := range all {
		r := s.routes[w.Channel]
		if r == nil {
			r = &route{}
			s.routes[w.Channel], x.channels[w.Channel] = r, r
		}
		if !slices.Contains(r.topics, w.Topic) {
			r.topics = append(r.topics, w.Topic)
		}
		if x.at != nil {
			r.at = x.at
		}
	}
	if x.at != nil {
		x.at.WatchTogether(all)
		return
	}
	s.lost[slot] = true
	s.signal()
}

func (s *shards) Unwatch(channel string, t backend.Topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all != nil {
		s.all.Unwatch(channel, t)
		return
	}
	if s.decided {
		channel = s.Channel(t)
	}
	r := s.routes[channel]
	if r == nil {
		return
	}
	r.topics = slices.DeleteFunc(r.topics, func(o backend.Topic) bool { return o == t })
	if r.at != nil {
		r.at.Unwatch(channel, t)
	}
	if len(r.topics) > 0 {
		return
	}
	slot := s.Slot(channel)
	delete(s.routes, channel)
	delete(s.slots[slot].channels, channel)
	if len(s.slots[slot].channels) == 0 {
		delete(s.slots, slot)
		delete(s.lost, slot)
	}
}

// Listens reports whether a channel that is watched is subscribed.
func (s *shards) Listens(channel string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.all
	if r := s.routes[channel]; at == nil && r != nil {
		at = r.at
	}
	return at != nil && at.Listens(channel)
}

// Close ends all connections and goroutines. No event is delivered after it.
func (s *shards) Close() {
	s.mu.Lock()
	s.closed = true
	started := s.started
	s.mu.Unlock()
	s.cancel()
	if started {
		<-s.ended
	}
	s.mu.Lock()
	nodes := s.nodes
	s.nodes = nil
	if s.all != nil {
		nodes = map[string]*subscriptions{"": s.all}
	}
	s.mu.Unlock()
	for _, n := range nodes {
		s.gone.Go(n.Close)
	}
	s.gone.Wait()
}

// newNode makes the subscriptions of one node.
func (s *shards) newNode(name string) *subscriptions {
	n := newSubscriptions(s.Config)
	n.Open = func(ctx context.Context, ev ShardEvents) (Subscription, error) {
		return s.SubscribeShard(ctx, name, n.anyName(), ev)
	}
	n.shards = s
	return n
}

// moved hears from a node that it does not have the slots of these channels any more, or
// that it refused them.
func (s *shards) moved(at *subscriptions, channels []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, channel := range channels {
		slot := s.Slot(channel)
		if x := s.slots[slot]; x != nil && x.at == at {
			x.at, x.moved = nil, true
			s.lost[slot], s.search = true, true
			s.verify = time.Now().Add(newsTravels)
		}
	}
	s.signal()
}

// broken hears that a node's connection was lost or could not be had: another may have
// taken its slots over.
func (s *shards) broken(at *subscriptions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.slots {
		if x.at == at {
			s.search = true
			s.verify = time.Now().Add(newsTravels)
			s.signal()
			return
		}
	}
}

// run finds nodes and moves channels; it alone does.
func (s *shards) run() {
	defer close(s.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(s.step())
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// step does what is due, and tells when more will be.
func (s *shards) step() time.Duration {
	s.mu.Lock()
	if !s.verify.IsZero() && time.Until(s.verify) <= 0 {
		s.search, s.verify = true, time.Time{}
	}
	decided, search, wait := s.decided, s.search, time.Until(s.next)
	s.mu.Unlock()
	switch {
	case !decided && wait > 0:
		return wait
	case !decided:
		sharded, err := s.Decide(s.ctx)
		if err != nil {
			s.tell(err)
			return s.pause()
		}
		s.mu.Lock()
		s.shard(sharded)
		s.mu.Unlock()
	case search && wait <= 0:
		s.pause()
		s.mu.Lock()
		s.search = false
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(s.ctx, Patience)
		err := s.FindMasters(ctx)
		cancel()
		if err != nil {
			s.tell(err)
			return s.again()
		}
		if err := s.find(true); err != nil {
			s.tell(err)
			return s.again()
		}
	}
	if err := s.find(false); err != nil {
		s.tell(err)
		return s.again()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.search || !s.decided {
		return max(time.Until(s.next), 0)
	}
	if !s.verify.IsZero() {
		return max(time.Until(s.verify), 0)
	}
	return time.Hour
}

// pause sets the time of the next search after one that begins now.
func (s *shards) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.last) > 2*lastSearch {
		s.pauses = 0
	}
	pause := min(FirstPause<<min(s.pauses, 10), lastSearch)
	s.pauses++
	s.last = now
	s.next = now.Add(pause - rand.N(pause/2))
	return time.Until(s.next)
}

// again has the search repeated.
func (s *shards) again() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.search = true
	return max(time.Until(s.next), 0)
}

// find looks up the nodes of slots by what the client knows: those that are lost, and
// after a search all of them. A slot that has moved waits for the search.
func (s *shards) find(searched bool) error {
	type lookup struct {
		slot    int
		channel string
	}
	var lookups []lookup
	s.mu.Lock()
	if !s.decided || s.all != nil {
		s.mu.Unlock()
		return nil
	}
	look := func(slot int) {
		for channel := range s.slots[slot].channels {
			lookups = append(lookups, lookup{slot, channel})
			return
		}
	}
	if searched {
		for slot := range s.slots {
			look(slot)
		}
	} else {
		for slot := range s.lost {
			if !s.slots[slot].moved {
				look(slot)
			}
		}
	}
	s.mu.Unlock()

	var failed error
	for _, l := range lookups {
		name, err := s.Master(s.ctx, l.channel)
		if err != nil {
			failed = err
			continue
		}
		s.mu.Lock()
		s.settle(l.slot, name, searched)
		s.mu.Unlock()
	}
	if searched {
		s.sweep()
	}
	return failed
}

// settle brings the channels of a slot to a node. It is called with s.mu held.
func (s *shards) settle(slot int, name string, searched bool) {
	x := s.slots[slot]
	if x == nil || s.closed || x.moved && !searched {
		return
	}
	at := s.nodes[name]
	if at == nil {
		at = s.newNode(name)
		s.nodes[name] = at
	}
	if x.at == at && !s.lost[slot] {
		return
	}
	delete(s.lost, slot)
	x.at, x.moved = at, false
	for channel, r := range x.channels {
		from := r.at
		r.at = at
		if from == at { // those that were not refused go on undisturbed
			at.resubscribe(channel, r.topics)
			continue
		}
		for _, t := range r.topics {
			at.Watch(channel, t)
		}
		if from == nil {
			continue
		}
		for _, t := range r.topics {
			from.Unwatch(channel, t)
		}
	}
}

// sweep closes what nodes without channels leave open.
func (s *shards) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := map[*subscriptions]bool{}
	for _, x := range s.slots {
		used[x.at] = true
		for _, r := range x.channels {
			used[r.at] = true
		}
	}
	for name, n := range s.nodes {
		if !used[n] && !s.closed {
			delete(s.nodes, name)
			s.gone.Go(n.Close)
		}
	}
}

// shard begins with what was watched before it was known how. It is called with s.mu
// held.
func (s *shards) shard(sharded bool) {
	early := s.routes
	s.decided = true
	s.routes, s.slots, s.lost = map[string]*route{}, map[int]*shardSlot{}, map[int]bool{}
	if !sharded {
		s.all = newSubscriptions(s.Config)
		for channel, r := range early {
			for _, t := range r.topics {
				s.all.Watch(channel, t)
			}
		}
		return
	}
	for _, r := range early {
		for _, t := range r.topics {
			s.add([]Watch{{s.Channel(t), t}})
		}
	}
}

// tell tells of the topics whose channels have no node, if the reason will not pass by itself.
func (s *shards) tell(err error) {
	tell := s.Failed(err)
	if tell == nil || s.ctx.Err() != nil {
		return
	}
	var topics []backend.Topic
	s.mu.Lock()
	for slot := range s.lost {
		if x := s.slots[slot]; x != nil {
			for _, r := range x.channels {
				topics = append(topics, r.topics...)
			}
		}
	}
	s.mu.Unlock()
	for _, t := range topics {
		tell(t)
	}
}
