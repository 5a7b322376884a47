package redisproto

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto/pubsub"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// fakeCluster is an adapter to a cluster in memory: which node has which slot, and what the client
// believes.
type fakeCluster struct {
	*fakeAdapter
	mode ShardedPubSub

	// Guarded by fakeAdapter.mu.
	ask      error
	truth    map[int]string // slots that are elsewhere than at node "0"
	belief   map[int]string
	stale    int // how many more searches are answered with what was
	searches int
	hung     chan struct{}   // searches hang until it is closed; nil: they do not
	commands int             // of Subscribe
	denied   map[string]bool // channels that are refused
	down     map[string]bool
	nodes    map[string][]*fakeShard
}

func newFakeCluster() *fakeCluster {
	return &fakeCluster{
		fakeAdapter: &fakeAdapter{features: Features{Cluster: true}},
		truth:       map[int]string{},
		belief:      map[int]string{},
		denied:      map[string]bool{},
		down:        map[string]bool{},
		nodes:       map[string][]*fakeShard{},
	}
}

func at(m map[int]string, channel string) string {
	if node, ok := m[Slot(channel)]; ok {
		return node
	}
	return "0"
}

func (c *fakeCluster) ShardedPubSub() ShardedPubSub { return c.mode }

func (c *fakeCluster) AskSharded(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ask
}

func (c *fakeCluster) Master(_ context.Context, channel string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return at(c.belief, channel), nil
}

func (c *fakeCluster) FindMasters(ctx context.Context) error {
	c.mu.Lock()
	hung := c.hung
	c.mu.Unlock()
	if hung != nil {
		select {
		case <-hung:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.searches++
	if c.stale > 0 {
		c.stale--
		return nil
	}
	c.belief = map[int]string{}
	for slot, node := range c.truth {
		c.belief[slot] = node
	}
	return nil
}

func (c *fakeCluster) SubscribeShard(_ context.Context, node, name string, ev ShardEvents) (Subscription, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down[node] {
		return nil, errors.New("connection refused")
	}
	if name == "" {
		return nil, errors.New("no name is told")
	}
	s := &fakeShard{c: c, node: node, ev: ev, channels: map[string]bool{}}
	c.nodes[node] = append(c.nodes[node], s)
	return s, nil
}

type fakeShard struct {
	c        *fakeCluster
	node     string
	ev       ShardEvents
	channels map[string]bool
}

// Subscribe sends a command for each slot, as the adapters do. A command is refused as a whole, and permissions are
// checked first, as in Redis.
func (s *fakeShard) Subscribe(_ context.Context, channels ...string) error {
	for _, group := range BySlot(len(channels), func(i int) string { return channels[i] }) {
		names := make([]string, len(group))
		for i, at := range group {
			names[i] = channels[at]
		}
		s.c.mu.Lock()
		s.c.commands++
		var err error
		switch to := at(s.c.truth, names[0]); {
		case slices.ContainsFunc(names, func(name string) bool { return s.c.denied[name] }):
			err = serverError("NOPERM No permissions to access a channel")
		case to != s.node:
			err = serverError(fmt.Sprintf("MOVED %d %s", Slot(names[0]), to))
		default:
			for _, name := range names {
				s.channels[name] = true
			}
		}
		s.c.mu.Unlock()
		if err != nil {
			s.ev.Refused(names, err)
			continue
		}
		for _, name := range names {
			s.ev.Subscribed(name)
		}
	}
	return nil
}

func (s *fakeShard) Unsubscribe(_ context.Context, channels ...string) error {
	for _, name := range channels {
		s.c.mu.Lock()
		here := at(s.c.truth, name) == s.node
		delete(s.channels, name)
		s.c.mu.Unlock()
		if here {
			s.ev.Unsubscribed(name)
		} else {
			s.ev.Alive()
		}
	}
	return nil
}

func (s *fakeShard) Ping(context.Context) error {
	s.ev.Alive()
	return nil
}

func (s *fakeShard) Close() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.nodes[s.node] = slices.DeleteFunc(s.c.nodes[s.node], func(o *fakeShard) bool { return o == s })
	return nil
}

// move moves a channel's slot, as the cluster does: the old master ends subscriptions.
func (c *fakeCluster) move(channel, to string) {
	c.mu.Lock()
	from := at(c.truth, channel)
	c.truth[Slot(channel)] = to
	var ended []*fakeShard
	for _, s := range c.nodes[from] {
		if from != to && s.channels[channel] {
			delete(s.channels, channel)
			ended = append(ended, s)
		}
	}
	c.mu.Unlock()
	for _, s := range ended {
		s.ev.Unsubscribed(channel)
	}
}

// kill breaks a node's connections.
func (c *fakeCluster) kill(node string) {
	c.mu.Lock()
	broken := c.nodes[node]
	c.nodes[node] = nil
	c.mu.Unlock()
	for _, s := range broken {
		s.ev.Down(errors.New("EOF"))
	}
}

// spublish reports how many heard it.
func (c *fakeCluster) spublish(channel string) (n int) {
	c.mu.Lock()
	var hears []*fakeShard
	for _, s := range c.nodes[at(c.truth, channel)] {
		if s.channels[channel] {
			hears = append(hears, s)
		}
	}
	c.mu.Unlock()
	for _, s := range hears {
		s.ev.Message(channel, "0")
	}
	return len(hears)
}

func (c *fakeCluster) connections() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, all := range c.nodes {
		n += len(all)
	}
	return n
}

// clusterBubble is bubble with a cluster.
func clusterBubble(t *testing.T, test func(t *testing.T, c *fakeCluster, s *session, r *recorder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		s, r := open(t, c)
		test(t, c, s, r)
		s.Close()
	})
}

func TestAChannelFollowsItsSlot(t *testing.T) {
	clusterBubble(t, func(t *testing.T, c *fakeCluster, s *session, r *recorder) {
		s.Subscribe(topic("n"))
		s.Subscribe(topic("m"))
		synctest.Wait()
		wantAll(t, r, "watching m", "watching n")
		// The server says so, and the news is slow.
		c.set(func() { c.stale = 3 })
		c.move(channelOf("n"), "1")
		pass(2 * time.Second)
		want(t, r, "watching n")
		check.ErrorIf(t, c.spublish(channelOf("n")) != 1 || c.spublish(channelOf("m")) != 1, "not heard")
		want(t, r, "released n", "released m")
		// What the client believes is wrong from the start.
		c.set(func() { c.belief = map[int]string{} })
		s.Unsubscribe(topic("n"))
		pass(time.Minute)
		s.Subscribe(topic("n"))
		pass(time.Second)
		want(t, r, "watching n")
		check.Equal(t, "%d hear it", c.spublish(channelOf("n")), 1)
		searches := c.searches
		pass(time.Hour)
		n := c.searches - searches
		check.ErrorIf(t, n > 1, "%d searches in an hour in which nothing happened", n)
		check.Equal(t, "%d connections to 2 nodes", c.connections(), 2)
		s.Close()
		check.Equal(t, "%d connections after Close", c.connections(), 0)
	})
}

func TestANodesChannelsGoToTheOneThatTookItOver(t *testing.T) {
	clusterBubble(t, func(t *testing.T, c *fakeCluster, s *session, r *recorder) {
		s.Subscribe(topic("n"))
		synctest.Wait()
		want(t, r, "watching n")
		c.set(func() { c.down["0"] = true })
		c.kill("0")
		pass(10 * time.Second) // no replica has taken over yet
		want(t, r)
		c.set(func() { c.truth[Slot(channelOf("n"))] = "1" })
		pass(pubsub.LastPause + time.Second)
		want(t, r, "watching n")
		check.ErrorIf(t, c.spublish(channelOf("n")) != 1, "not heard")
		r.take()
		dials := c.searches
		pass(time.Hour)
		n := c.searches - dials
		check.ErrorIf(t, n > 2, "%d searches for a node that is not needed", n)
	})
}

func TestARefusedChannelIsToldToItsWatcherAlone(t *testing.T) {
	clusterBubble(t, func(t *testing.T, c *fakeCluster, s *session, r *recorder) {
		c.denied[channelOf("no")] = true
		s.Subscribe(topic("yes"))
		synctest.Wait()
		s.Subscribe(topic("no"))
		synctest.Wait()
		want(t, r, "watching yes")
		check.ErrorIf(t, len(r.failed) == 0 || backend.FaultOf(r.failed[0]).Temporary || slices.Contains(r.deaf, "yes"),
			"told %v: %v", r.deaf, r.failed)
		c.set(func() { c.denied = nil }) // an operator helped
		pass(time.Second)
		want(t, r, "watching no")
		check.Equal(t, "%d connections", c.connections(), 1)
	})
}

// Those of the same slot are not told again and again that they listen: each time they ask.
func TestARefusedChannelDoesNotDisturbThoseOfItsSlot(t *testing.T) {
	clusterBubble(t, func(t *testing.T, c *fakeCluster, s *session, r *recorder) {
		c.denied[channelOf("{t}no")] = true
		s.Subscribe(topic("{t}yes"))
		synctest.Wait()
		s.Subscribe(topic("{t}no"))
		pass(10 * time.Second)
		want(t, r, "watching {t}yes")
		check.ErrorIf(t, len(r.failed) == 0 || slices.Contains(r.deaf, "{t}yes"), "told %v: %v", r.deaf, r.failed)
		// An interruption is told to both.
		c.set(func() { c.denied = nil })
		pass(time.Second)
		want(t, r, "watching {t}no")
		c.kill("0")
		pass(10 * time.Second)
		wantAll(t, r, "watching {t}no", "watching {t}yes")
	})
}

// Redis refuses a command as a whole. The channels beside a forbidden one are subscribed without it, and their slot is
// not taken for one that has moved, which would hold up other watches.
func TestARefusedChannelDoesNotFailThoseOfItsCommand(t *testing.T) {
	for what, interrupt := range map[string]func(c *fakeCluster){
		"watched together": func(*fakeCluster) {},
		"reconnect":        func(c *fakeCluster) { c.kill("0") },
		"move":             func(c *fakeCluster) { c.move(channelOf("{t}yes"), "1") },
	} {
		t.Run(what, func(t *testing.T) {
			clusterBubble(t, func(t *testing.T, c *fakeCluster, s *session, r *recorder) {
				for _, channel := range channelsOf(s, "{t}no") {
					c.denied[channel] = true
				}
				s.Subscribe(topic("{t}no"))
				s.Subscribe(topic("{t}yes"))
				synctest.Wait()
				want(t, r, "watching {t}yes")
				interrupt(c)
				pass(5 * time.Second)
				r.take()
				searches, commands := c.searches, c.commands
				s.Subscribe(topic("{t}later"))
				synctest.Wait()
				want(t, r, "watching {t}later")
				pass(10 * time.Second)
				want(t, r)
				check.ErrorIf(t, c.spublish(channelOf("{t}yes")) != 1, "not heard")
				check.ErrorIf(t, len(r.deaf) < 2 || slices.ContainsFunc(r.deaf, func(n string) bool { return n != "{t}no" }),
					"told that these cannot be watched: %q", r.deaf)
				n := c.commands - commands
				check.ErrorIf(t, c.searches != searches || n < 30 || n > 120,
					"%d searches, %d commands in 10 s", c.searches-searches, n)
			})
		})
	}
}

// Readers and writers listen on one channel. Those that come while it is found out where its slot is are told, too, if
// the slot is where it was.
func TestATopicThatComesWhileItsSlotIsSoughtIsWatched(t *testing.T) {
	clusterBubble(t, func(t *testing.T, c *fakeCluster, s *session, r *recorder) {
		s.Subscribe(backend.Topic{Kind: backend.KindRead, Name: "n"})
		synctest.Wait()
		want(t, r, "watching n")
		for range 2 { // the second search has to wait a moment
			c.move(rwChannel("n"), "1")
			c.move(rwChannel("n"), "0")
			synctest.Wait()
		}
		r.take()
		s.Subscribe(backend.Topic{Kind: backend.KindWrite, Name: "n"})
		pass(time.Second)
		wantAll(t, r, "watching n", "watching n")
		check.Equal(t, "%d hear it", c.spublish(rwChannel("n")), 1)
		want(t, r, "released n", "released n")
	})
}

func TestHowReleasesAreAnnouncedIsDecidedOnce(t *testing.T) {
	for _, test := range []struct {
		what    string
		mode    ShardedPubSub
		ask     error
		command string // empty: an error
		later   bool   // it may pass
	}{
		{"Auto, known", ShardedAuto, nil, "spublish", false},
		{"Auto, unknown", ShardedAuto, serverError("ERR Unknown subcommand or wrong number of arguments for " +
			"'shardnumsub'. Try PUBSUB HELP."), "publish", false},
		{"Auto, not allowed", ShardedAuto, serverError("NOPERM User u has no permissions to run the " +
			"'pubsub|shardnumsub' command"), "publish", false},
		{"Auto, no cluster", ShardedAuto, ErrNoCluster, "publish", false},
		{"Auto, loading", ShardedAuto, serverError("LOADING Redis is loading the dataset in memory"), "", true},
		{"Auto, no password", ShardedAuto, serverError("NOAUTH Authentication required."), "", false},
		{"Auto, away", ShardedAuto, errors.New("EOF"), "", true},
		{"On, known", ShardedOn, nil, "spublish", false},
		{"On, unknown", ShardedOn, serverError("ERR unknown command 'PUBSUB'"), "", false},
		{"On, not allowed", ShardedOn, serverError("NOPERM User u has no permissions to run the " +
			"'pubsub|shardnumsub' command"), "spublish", false},
		{"On, no cluster", ShardedOn, ErrNoCluster, "", false},
		{"Off", ShardedOff, nil, "publish", false},
	} {
		t.Run(test.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFakeCluster()
				c.mode, c.ask = test.mode, test.ask
				s, _ := open(t, c)
				_, err := s.Acquire(t.Context(), backend.AcquireRequest{Name: "n", Owner: "o", Lease: time.Second})
				f := backend.FaultOf(err)
				switch {
				case test.command != "" && err != nil:
					t.Fatal(err)
				case test.command != "" && s.publish() != test.command:
					t.Errorf("%s, want %s", s.publish(), test.command)
				case test.command == "" && (err == nil || f.MayHaveRun || f.Temporary != test.later):
					t.Errorf("%+v", f)
				}
				if test.command != "" { // another answer comes too late
					c.set(func() { c.ask = serverError("ERR unknown command") })
					if err := s.ready(t.Context()); err != nil || s.publish() != test.command {
						t.Errorf("then %s, %v", s.publish(), err)
					}
					return
				}
				c.set(func() { c.ask = nil })
				if err := s.ready(t.Context()); err != nil || s.publish() != "spublish" {
					t.Errorf("then %s, %v", s.publish(), err)
				}
				s.Close()
			})
		})
	}
}

func TestWhatIsWatchedBeforeItIsDecidedIsWatchedThen(t *testing.T) {
	for _, answer := range []error{nil, ErrNoCluster} {
		synctest.Test(t, func(t *testing.T) {
			c := newFakeCluster()
			c.ask = errors.New("EOF")
			s, r := open(t, c)
			latch := backend.Topic{Kind: backend.KindCountDownLatch, Name: "{a}b"}
			s.Subscribe(latch)
			s.Subscribe(topic("n"))
			s.Subscribe(topic("left"))
			pass(10 * time.Second)
			want(t, r)
			s.Unsubscribe(topic("left"))
			c.set(func() { c.ask = answer })
			pass(time.Second)
			wantAll(t, r, "watching n", "watching {a}b")
			if answer == nil {
				check.ErrorIf(t, c.spublish("redisson_countdownlatch__channel__{a}b") != 1,
					"the latch's channel is not in its slot")
			} else if c.publish("redisson_countdownlatch__channel__{{a}b}", "0") != 1 {
				t.Error("the latch's channel is not Redisson's")
			}
			want(t, r, "released {a}b")
			s.Unsubscribe(latch)
			s.Unsubscribe(topic("n"))
			pass(2 * pubsub.Linger)
			n := c.spublish("redisson_countdownlatch__channel__{a}b") +
				c.publish("redisson_countdownlatch__channel__{{a}b}", "0")
			check.ErrorIf(t, n != 0, "the latch is still listened for")
			s.Close()
		})
	}
}

func TestSlotsAndNodesAtRandomEndInWhatWasAskedFor(t *testing.T) {
	for seed := range uint32(20) {
		clusterBubble(t, func(t *testing.T, c *fakeCluster, s *session, r *recorder) {
			x := seed
			wanted := map[string]bool{}
			for step := range 1000 {
				x = x*1664525 + 1013904223
				name := fmt.Sprint(x >> 28)
				node := fmt.Sprint(x >> 26 & 3)
				switch x >> 22 & 15 {
				case 0, 1:
					c.move(channelOf(name), node)
				case 2:
					c.set(func() { c.stale = int(x >> 20 & 3) })
				case 3:
					synctest.Wait()
					c.kill(node)
				case 4:
					c.set(func() { c.down[node] = !c.down[node] })
				case 5, 6, 7, 8, 9:
					s.Subscribe(topic(name))
					wanted[name] = true
				default:
					s.Unsubscribe(topic(name))
					delete(wanted, name)
				}
				if step%5 == 0 {
					pass(time.Duration(x>>18&255) * time.Millisecond)
				}
			}
			c.set(func() { c.down, c.stale = map[string]bool{}, 0 })
			pass(10 * time.Second)
			r.take()
			for n := range 16 {
				name := fmt.Sprint(n)
				heard := 0
				if wanted[name] {
					heard = 1
				}
				got := c.spublish(channelOf(name))
				check.ErrorIf(t, got != heard, "seed %d: %d subscriptions to %s, want %d", seed, got, name, heard)
				if heard == 1 {
					want(t, r, "released "+name)
				}
			}
			n := c.connections()
			check.ErrorIf(t, n > 4, "seed %d: %d connections to 4 nodes", seed, n)
		})
	}
}

func TestAWatchOnAClusterThatHangsCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &hangingCluster{newFakeCluster()}
		s := check.Value(New(func() (Adapter, error) { return c, nil }).Open(&recorder{})).In(t)
		s.Subscribe(topic("n"))
		synctest.Wait()
		s.Close()
		s.Subscribe(topic("m"))
		s.Unsubscribe(topic("n"))
	})
}

type hangingCluster struct{ *fakeCluster }

func (c *hangingCluster) AskSharded(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// A search asks nodes, and one that hangs must not delay the channels of the others.
func TestAChannelIsSubscribedWhileASearchHangs(t *testing.T) {
	clusterBubble(t, func(t *testing.T, c *fakeCluster, s *session, r *recorder) {
		c.move(channelOf("n"), "1")
		c.set(func() { c.belief[Slot(channelOf("n"))] = "1" })
		s.Subscribe(topic("n"))
		synctest.Wait()
		want(t, r, "watching n")
		hung := make(chan struct{})
		c.set(func() { c.hung, c.down["1"] = hung, true })
		c.kill("1")
		pass(time.Second)
		s.Subscribe(topic("m"))
		synctest.Wait()
		want(t, r, "watching m")
		c.move(channelOf("n"), "2")
		close(hung)
		pass(time.Second)
		want(t, r, "watching n")
	})
}
