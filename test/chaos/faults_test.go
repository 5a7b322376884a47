//go:build linux

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// kind is a kind of fault.
type kind struct {
	name    string
	promise harness.Promise
	sites   []string // nil: everywhere
	// run does it, and undoes it. It may narrow what is noted of it, and returns false where it
	// could not be done; then nothing was.
	run func(c *crew, f *harness.Fault) bool

	// weather, if it is that, and for which sides.
	weather func(*crew) weather
	sides   func(*crew) []int
}

var (
	everywhere = []string{standalone, sentinels, cluster}
	withAOF    = []string{standalone, cluster}
	onSentinel = []string{sentinels}
	onCluster  = []string{cluster}
	alone      = []string{standalone}
)

// catalog is all that can happen.
var catalog = []kind{
	// Processes.
	{name: "holder killed", run: func(c *crew, f *harness.Fault) bool {
		p := c.any()
		if c.hang(p) == nil {
			return false
		}
		c.kill(p, f)
		c.replace(p)
		return true
	}},
	{name: "waiter killed", run: toWaiter(func(c *crew, q int, f *harness.Fault, letGo func()) {
		c.kill(q, f)
		letGo()
		c.replace(q)
	})},
	{name: "holder stopped past its lease", run: stopsHolder(func(c *crew) time.Duration {
		return c.config.Lease + c.between(100*time.Millisecond, 500*time.Millisecond)
	})},
	{name: "holder stopped briefly", run: stopsHolder(func(c *crew) time.Duration {
		return c.between(100*time.Millisecond, c.config.Lease/2)
	})},
	{name: "waiter stopped", run: toWaiter(func(c *crew, q int, f *harness.Fault, letGo func()) {
		f.From = harness.Now()
		harness.OK(c.t, c.Members[q].Freeze())
		letGo()
		pass(c.between(500*time.Millisecond, 2*c.config.Lease))
		f.To = harness.Now()
		harness.OK(c.t, c.Members[q].Thaw())
	})},

	// The network.
	{name: "partition, both ways", run: partitions(true, true, everybody)},
	{name: "partition, requests only", run: partitions(true, false, everybody)},
	{name: "partition, replies only", run: partitions(false, true, everybody)},
	{name: "partition of half of the processes", run: partitions(true, true, half)},
	{name: "partition of half of the processes, requests only", run: partitions(true, false, half)},
	{name: "partition of half of the processes, replies only", run: partitions(false, true, half)},
	weatherKind("latency", everybody, func(c *crew) weather {
		d := c.between(5*time.Millisecond, 60*time.Millisecond)
		return weather{delay: [2]time.Duration{d, d}}
	}),
	weatherKind("requests of half of the processes late", half, func(c *crew) weather {
		return weather{delay: [2]time.Duration{upstream: c.between(100*time.Millisecond, commandTimeout*3/4)}}
	}),
	weatherKind("replies to half of the processes late", half, func(c *crew) weather {
		return weather{delay: [2]time.Duration{downstream: c.between(100*time.Millisecond, commandTimeout*3/4)}}
	}),
	weatherKind("jitter", everybody, func(c *crew) weather {
		return weather{vary: c.between(10*time.Millisecond, 80*time.Millisecond)}
	}),
	weatherKind("little bandwidth", everybody, func(c *crew) weather {
		return weather{rate: 4<<10 + c.rand.IntN(16<<10)}
	}),
	weatherKind("torn packets", everybody, func(*crew) weather { return weather{tear: true} }),
	{name: "connections cut", run: func(c *crew, f *harness.Fault) bool {
		n := 0
		for _, w := range c.site.wires(everybody(c)) {
			n += w.Cut()
		}
		return n > 0
	}},
	{name: "reply lost, connection mute", run: strikes(dropAndMute)},
	{name: "reply lost, connection cut", run: strikes(dropAndCut)},
	{name: "reply half-sent", run: strikes(halve)},

	// What an operator, or Redis itself, does.
	{name: "CLIENT KILL TYPE normal", run: commands("CLIENT", "KILL", "TYPE", "normal")},
	{name: "CLIENT KILL TYPE pubsub", run: commands("CLIENT", "KILL", "TYPE", "pubsub")},
	{name: "CLIENT PAUSE ALL", run: pauses("ALL")},
	{name: "CLIENT PAUSE WRITE", run: pauses("WRITE")},
	{name: "SCRIPT FLUSH", run: commands("SCRIPT", "FLUSH")},
	{name: "out of memory, noeviction", run: always(func(c *crew, f *harness.Fault) {
		c.site.tellAll("CONFIG", "SET", "maxmemory", "1", "maxmemory-policy", "noeviction")
		pass(c.between(200*time.Millisecond, 1200*time.Millisecond))
		c.site.tellAll("CONFIG", "SET", "maxmemory", "0")
	})},
	{name: "DEBUG SLEEP", run: always(func(c *crew, f *harness.Fault) {
		n := c.pick(c.site.masters())
		d := c.between(200*time.Millisecond, 1500*time.Millisecond)
		n.server.Must("DEBUG", "SLEEP", fmt.Sprintf("%.3f", d.Seconds()))
	})},
	{name: "DEL of a lock that is held", promise: harness.TokensRise, run: func(c *crew, f *harness.Fault) bool {
		p := c.any()
		e := c.hang(p)
		if e == nil {
			return false
		}
		defer c.LetGo(p)
		f.Name = e.Name.Load()
		key := c.config.key(f.Name)
		n := c.site.serving(key)
		f.From = harness.Now()
		v, err := n.server.Do("DEL", key, permitsOut(key))
		// The visit that is inside when it is deleted is not necessarily e.
		return err == nil && v != int64(0)
	}},
	{name: "FLUSHALL", promise: harness.TokensRise, run: always(func(c *crew, f *harness.Fault) {
		f.Certain = true
		c.site.tellAll("FLUSHALL")
	})},
	{name: "eviction under maxmemory", promise: harness.TokensRise, run: evicts},

	// Servers.
	{name: "server stopped for less than a lease", run: always(func(c *crew, f *harness.Fault) {
		stops(c.pick(c.site.masters()).server, c.between(200*time.Millisecond, c.config.Lease/2))
	})},
	{name: "server stopped for more than a lease", sites: withAOF, run: always(func(c *crew, f *harness.Fault) {
		d := c.config.Lease + c.between(100*time.Millisecond, 500*time.Millisecond)
		stops(c.pick(c.site.masters()).server, d)
	})},
	{name: "server killed, back with its AOF", sites: withAOF, run: always(func(c *crew, f *harness.Fault) {
		kills(c.pick(c.site.masters()).server, c.between(0, 800*time.Millisecond))
		if c.site.kind == cluster {
			c.site.cluster.Settle() // it refuses writes for two seconds
		}
	})},
	{name: "server killed, back empty", promise: harness.TokensRise, sites: alone,
		run: always(func(c *crew, f *harness.Fault) {
			f.Certain = true
			n := c.site.nodes[0]
			n.server.Stop()
			harness.OK(c.t, os.RemoveAll(filepath.Join(n.dir, "appendonlydir")))
			os.Remove(filepath.Join(n.dir, "appendonly.aof")) // before Redis 7
			pass(c.between(0, 500*time.Millisecond))
			n.server.Restart()
		})},
	{name: "AOF rewritten", sites: withAOF, run: func(c *crew, f *harness.Fault) bool {
		for _, n := range c.site.masters() {
			if _, err := n.server.Do("BGREWRITEAOF"); err != nil {
				return false
			}
		}
		for _, n := range c.site.masters() {
			c.Await("the AOF is rewritten", func() bool {
				return n.server.Info("aof_rewrite_in_progress") == "0" && n.server.Info("aof_rewrite_scheduled") == "0"
			})
		}
		return true
	}},

	// Sentinels and replicas.
	{name: "replica killed", sites: onSentinel, run: always(func(c *crew, f *harness.Fault) {
		r, m := c.site.replica(), c.site.master()
		kills(r.server, c.between(100*time.Millisecond, time.Second))
		c.site.follow(r.server, m.server)
		c.site.settle()
	})},
	{name: "replica stopped", sites: onSentinel, run: always(func(c *crew, f *harness.Fault) {
		stops(c.site.replica().server, c.between(100*time.Millisecond, 1500*time.Millisecond))
		c.site.settle()
	})},
	{name: "sentinel killed", sites: onSentinel, run: always(func(c *crew, f *harness.Fault) {
		kills(c.sentinel(), c.between(100*time.Millisecond, 1500*time.Millisecond))
		c.site.settle()
	})},
	{name: "sentinel stopped", sites: onSentinel, run: always(func(c *crew, f *harness.Fault) {
		stops(c.sentinel(), c.between(100*time.Millisecond, 1500*time.Millisecond))
		c.site.settle()
	})},
	{name: "SENTINEL FAILOVER", promise: harness.TellsLater, sites: onSentinel,
		run: always(func(c *crew, _ *harness.Fault) {
			before := c.site.master()
			x := c.sentinel()
			var asked time.Time // again, where it took the replica for one that cannot be promoted
			c.Await("a sentinel fails over", func() bool {
				if time.Since(asked) > 3*redistest.DownAfter {
					x.Do("SENTINEL", "FAILOVER", redistest.MasterSet)
					asked = time.Now()
				}
				return c.site.master() != before
			})
			c.site.taken(before)
		})},
	{name: "master killed, replica takes over", promise: harness.TellsLater, sites: onSentinel,
		run: replaces((*redistest.Server).Stop, (*redistest.Server).Restart)},
	{name: "master stopped, replica takes over, master goes on", promise: harness.TellsLater, sites: onSentinel,
		run: replaces((*redistest.Server).Pause, (*redistest.Server).Resume)},

	// Clusters.
	{name: "slot of a held lock moved", sites: onCluster, run: moves(0)},
	{name: "slot of a held lock moved, slowly", sites: onCluster, run: moves(500 * time.Millisecond)},
	{name: "slots moved to and fro", sites: onCluster, run: always(func(c *crew, f *harness.Fault) {
		gen := c.Book.Round.Load() * generation
		for range 4 {
			c.site.move(c.rand, c.config.key(gen+c.rand.Int64N(int64(hotNames+coldNames))), 0)
		}
	})},
}

// always is what can be done at any time.
func always(do func(c *crew, f *harness.Fault)) func(*crew, *harness.Fault) bool {
	return func(c *crew, f *harness.Fault) bool {
		do(c, f)
		return true
	}
}

// stopsHolder stops a process that is inside for a while.
func stopsHolder(d func(*crew) time.Duration) func(*crew, *harness.Fault) bool {
	return func(c *crew, f *harness.Fault) bool {
		p := c.any()
		if c.hang(p) == nil {
			return false
		}
		c.freeze(p, d(c), f)
		c.LetGo(p)
		return true
	}
}

// toWaiter does something to a process that waits for one that is inside, and lets that one go.
func toWaiter(do func(c *crew, q int, f *harness.Fault, letGo func())) func(*crew, *harness.Fault) bool {
	return func(c *crew, f *harness.Fault) bool {
		p := c.any()
		if c.hang(p) == nil {
			return false
		}
		q := c.any(p)
		waits := harness.Awaits(20*time.Second, func() bool { return c.Waiting(q) > 0 })
		if waits {
			do(c, q, f, func() { c.LetGo(p) })
		}
		c.LetGo(p)
		return waits
	}
}

// stops stops a server for a while.
func stops(s *redistest.Server, d time.Duration) {
	s.Pause()
	pass(d)
	s.Resume()
}

// kills kills a server, which comes back after a while.
func kills(s *redistest.Server, d time.Duration) {
	s.Stop()
	pass(d)
	s.Restart()
}

// replaces has a replica take over from a master that something is done to, and that then comes back.
func replaces(do, undo func(*redistest.Server)) func(*crew, *harness.Fault) bool {
	return always(func(c *crew, _ *harness.Fault) {
		before, next := c.site.master(), c.site.replica()
		do(before.server)
		// It may need a second attempt.
		c.Await("a sentinel names the replica", func() bool { return c.site.master() == next })
		undo(before.server)
		c.site.taken(before)
	})
}

// sentinel is one of them.
func (c *crew) sentinel() *redistest.Server { return c.site.sentinels.Watch[c.rand.IntN(3)] }

// pick is one of some servers.
func (c *crew) pick(all []*node) *node { return all[c.rand.IntN(len(all))] }

// everybody, and half, are sides of the wires.
func everybody(*crew) []int { return []int{0, 1} }
func half(c *crew) []int    { return []int{c.rand.IntN(2)} }

// during has the weather change while f runs.
func during(wires []*wire, x weather, f func()) {
	for _, w := range wires {
		w.set(x)
	}
	f()
	for _, w := range wires {
		w.set(weather{})
	}
}

// partitions keeps processes from the servers for a while, sometimes for more than a lease.
func partitions(requests, replies bool, of func(*crew) []int) func(*crew, *harness.Fault) bool {
	return always(func(c *crew, f *harness.Fault) {
		f.Partition = true
		wires := c.site.wires(of(c))
		during(wires, weather{hold: [2]bool{requests, replies}}, func() {
			pass(c.between(300*time.Millisecond, c.config.Lease*3/2))
		})
	})
}

// weatherKind changes what passes for a while.
func weatherKind(name string, sides func(*crew) []int, x func(*crew) weather) kind {
	return kind{name: name, sides: sides, weather: x, run: always(func(c *crew, f *harness.Fault) {
		wires, now := c.site.wires(sides(c)), x(c)
		during(wires, now, func() { pass(c.between(time.Second, 2500*time.Millisecond)) })
	})}
}

// strikes loses a reply of a script, and waits until its connection has ended.
func strikes(d deed) func(*crew, *harness.Fault) bool {
	return func(c *crew, f *harness.Fault) bool {
		n := c.pick(c.site.masters())
		s := &strike{deed: d, struck: make(chan struct{})}
		w := n.wires[c.rand.IntN(2)]
		w.arm(s)
		select {
		case <-s.struck:
		case <-time.After(10 * time.Second):
			w.disarm()
			return false
		}
		select {
		case <-s.line.Dead():
		case <-time.After(patience):
			c.t.Fatalf("a client keeps a connection that a reply was lost of for %v", patience)
		}
		return true
	}
}

// newFault begins now.
func newFault(k kind) harness.Fault {
	return harness.Fault{Kind: k.name, Promise: k.promise, From: harness.Now(), Name: harness.NoName,
		Process: harness.NoProcess}
}

// strike does a fault, if it can be done.
func (c *crew) strike(name string) bool {
	c.t.Helper()
	k := kindNamed(c.t, name)
	f := newFault(k)
	if !k.run(c, &f) {
		return false
	}
	if f.Promise != harness.AllHolds {
		c.permits.restore()
	}
	if f.To == 0 {
		f.To = harness.Now()
	}
	c.Faults = append(c.Faults, f)
	return true
}

// backgrounds are what other faults may happen in front of.
var backgrounds = []string{"requests of half of the processes late", "replies to half of the processes late",
	"jitter", "latency"}

// before runs a fault while something else lasts, which is noted as a fault of its own.
func (c *crew) before(background string, run func() bool) bool {
	c.t.Helper()
	k := kindNamed(c.t, background)
	f := newFault(k)
	done := false
	during(c.site.wires(k.sides(c)), k.weather(c), func() { done = run() })
	f.To = harness.Now()
	c.Faults = append(c.Faults, f)
	return done
}

func kindNamed(t testing.TB, name string) kind {
	t.Helper()
	i := slices.IndexFunc(catalog, func(k kind) bool { return k.name == name })
	harness.FatalIf(t, i < 0, "no fault is called %q", name)
	return catalog[i]
}

func commands(args ...string) func(*crew, *harness.Fault) bool {
	return always(func(c *crew, _ *harness.Fault) { c.site.tellAll(args...) })
}

func pauses(mode string) func(*crew, *harness.Fault) bool {
	return always(func(c *crew, f *harness.Fault) {
		d := c.between(200*time.Millisecond, 1500*time.Millisecond)
		c.site.tellAll("CLIENT", "PAUSE", strconv.FormatInt(d.Milliseconds(), 10), mode)
		pass(d)
	})
}

// evicts fills a server until it evicts.
func evicts(c *crew, f *harness.Fault) bool {
	n := c.pick(c.site.masters()).server
	info := func(field string) int {
		i, err := strconv.Atoi(n.Info(field))
		if err != nil {
			return -1
		}
		return i
	}
	before := info("evicted_keys")
	most := info("used_memory") + 4<<20
	n.Must("CONFIG", "SET", "maxmemory", strconv.Itoa(most), "maxmemory-policy", "allkeys-random")
	// In a slot of the server's own, if it is one of a cluster.
	tag := "junk"
	if c.site.kind == cluster {
		for i := 0; ; i++ {
			tag = fmt.Sprint("junk", i)
			if c.site.serving(tag).server == n {
				break
			}
		}
	}
	value := strings.Repeat("x", 64<<10)
	var junk []string
	for i := 0; i < 400 && info("evicted_keys") < before+60; i++ {
		key := fmt.Sprintf("{%s}%d", tag, i)
		if _, err := n.Do("SET", key, value, "PX", "60000"); err == nil {
			junk = append(junk, key)
		}
	}
	evicted := info("evicted_keys") - before
	for batch := range slices.Chunk(junk, 50) {
		n.Do(append([]string{"UNLINK"}, batch...)...)
	}
	n.Must("CONFIG", "SET", "maxmemory", "0")
	if evicted == 0 {
		return false
	}
	c.permits.remove()
	return true
}

// moves moves the slot of a lock while it is held.
func moves(slowly time.Duration) func(*crew, *harness.Fault) bool {
	return func(c *crew, f *harness.Fault) bool {
		p := c.any()
		e := c.hang(p)
		if e == nil {
			return false
		}
		f.From = harness.Now()
		c.site.move(c.rand, c.config.key(e.Name.Load()), slowly)
		c.LetGo(p)
		return true
	}
}
