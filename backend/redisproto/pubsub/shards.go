package pubsub

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// lastSearch is the longest pause between two searches for the nodes of slots. The shortest is about FirstPause.
const lastSearch = 300 * time.Millisecond

// newsTravels is how long after a move of slots another search follows: the node that was asked first may not have
// known of the move yet. The search is necessary, because a former master that is a replica now accepts subscriptions.
const newsTravels = 2 * time.Second

// shards keeps a subscriptions for each node of a cluster that has watched channels. Its goroutine, run, finds the
// nodes of slots. It moves the channels of a slot to another node when the server ends their subscription, when a node
// refuses a subscription (but not for want of a permission), or when the connection to a node is lost. A moved channel
// is subscribed again, so Watching is called again for its topics, as after each interruption.
//
// Channels wait until Decide has reported whether pub/sub is sharded. If it is not, one subscriptions has all channels.
//
// Lock order: shards, subscriptions.
type shards struct {
	Config
	Sharding

	loop
	gone sync.WaitGroup // subscriptions that are being closed

	mu      sync.Mutex
	decided bool                      // Decide has reported
	all     *subscriptions            // all channels, if pub/sub is not sharded
	routes  map[string]*route         // by channel
	slots   map[int]*shardSlot        // by slot
	nodes   map[string]*subscriptions // by name of the node
	lost    map[int]bool              // slots whose node is to be looked up
	searches
}

// searches plans the searches: requests to the cluster for the nodes of all slots.
type searches struct {
	search bool      // a search is wanted
	under  bool      // a search is under way
	found  bool      // a search has ended
	err    error     // of the search that has ended
	pauses int       // the number of searches in close succession
	last   time.Time // the time of the last search
	next   time.Time // the earliest time of the next search
	verify time.Time // when to search once more after a move; zero if not
}

// route is a watched channel.
type route struct {
	topics []backend.Topic
	at     *subscriptions // nil while the node is unknown
}

// shardSlot is a slot with watched channels.
type shardSlot struct {
	at       *subscriptions // nil while the node is unknown
	channels map[string]*route
	moved    bool // the node that the client knows was wrong: the slot waits for a search
}

// NewSharded returns a Watcher with a connection for each node, or with a single connection if Decide
// reports that pub/sub is not sharded.
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

// Listens implements [Watcher]; with sharded pub/sub for watched channels only.
func (s *shards) Listens(channel string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.all
	if r := s.routes[channel]; at == nil && r != nil {
		at = r.at
	}
	return at != nil && at.Listens(channel)
}

// Demoted implements [Watcher].
func (s *shards) Demoted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all != nil {
		s.all.Demoted()
	}
}

// Close implements [Watcher].
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

// newNode returns the subscriptions of a node.
func (s *shards) newNode(name string) *subscriptions {
	n := newSubscriptions(s.Config)
	n.Open = func(ctx context.Context, ev ShardEvents) (Subscription, error) {
		return s.SubscribeShard(ctx, name, n.anyName(), ev)
	}
	n.shards = s
	return n
}

// moved notes that a node does not have the slots of these channels any more, or refused to subscribe them for another
// reason than a missing permission for a channel.
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

// broken notes that the connection to a node was lost, or that a dial failed: another node may have taken over its
// slots.
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

// run is the goroutine that finds nodes and moves channels: no other does.
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

// step decides, searches and looks up nodes, as far as due. It returns the time until the next step is due.
func (s *shards) step() time.Duration {
	s.mu.Lock()
	if !s.verify.IsZero() && time.Until(s.verify) <= 0 {
		s.search, s.verify = true, time.Time{}
	}
	decided, search, wait := s.decided, s.search && !s.under, time.Until(s.next)
	found, err := s.found, s.err
	s.found, s.err = false, nil
	s.mu.Unlock()
	if found {
		if err == nil {
			err = s.find(true)
		}
		if err != nil {
			s.tell(err)
			return s.again()
		}
	}
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
		s.search, s.under = false, true
		s.mu.Unlock()
		s.gone.Go(s.seek)
	}
	if err := s.find(false); err != nil {
		s.tell(err)
		return s.again()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.search && !s.under || !s.decided {
		return max(time.Until(s.next), 0)
	}
	if !s.verify.IsZero() {
		return max(time.Until(s.verify), 0)
	}
	return time.Hour
}

// seek asks the cluster for the nodes of the slots, beside run: a node that hangs must not delay channels of others.
func (s *shards) seek() {
	ctx, cancel := context.WithTimeout(s.ctx, Patience)
	defer cancel()
	err := s.FindMasters(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under, s.found, s.err = false, true, err
	s.signal()
}

// pause notes that a search begins now, and sets the earliest time of the next.
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

// again plans another search after one that failed. It returns the time until then.
func (s *shards) again() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.search = true
	return max(time.Until(s.next), 0)
}

// find looks up the nodes of slots, as the client library knows them: of the lost slots, or of all slots after a
// search. A slot that has moved waits for the search.
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

// settle moves the channels of a slot to a node. It is called with s.mu held.
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
		if from == at { // resubscribe leaves channels that are subscribed alone
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

// sweep closes the subscriptions of nodes without channels.
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

// shard takes the answer of Decide, and assigns the channels that were watched before it. It is called with s.mu held.
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

// tell calls Failed's function for the topics whose slots have no node, if err is not temporary.
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
