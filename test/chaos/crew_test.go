//go:build linux

package chaos

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise/test/internal/harness"
)

// patience bounds what takes no time worth speaking of.
const patience = 2 * time.Minute

var runs atomic.Int64

// crew is a site and the worker processes on it.
type crew struct {
	*harness.Crew
	t       *testing.T
	site    *site
	config  workerConfig
	configs []workerConfig // by process
	rules   harness.Rules
	rand    *rand.Rand
	skipped []string // faults that could not be done
	master  *node    // as the sentinels had it, and when that was
	seen    int64
	illEnds int // processes that did not end well: goroutines were left, for one
	permits *permits
	remains []string // records in the store after all had ended
}

// newCrew makes a site of servers and its workers' ledger. What is in config holds for all workers.
func newCrew(t *testing.T, where string, config workerConfig, seed uint64) *crew {
	t.Helper()
	h := fnv.New64a()
	h.Write([]byte(where))
	c := &crew{
		Crew: harness.NewCrew(t, patience), t: t, site: newSite(t, where), config: config,
		rules: harness.Rules{Lease: int64(config.Lease), Slack: int64(config.Lease + time.Second)},
		rand:  rand.New(rand.NewPCG(seed, h.Sum64())),
	}
	c.config.Ledger, c.config.Site = c.Path, c.site.clients
	c.config.Prefix = fmt.Sprintf("chaos:%d:", runs.Add(1))
	c.permits = &permits{t: t, site: c.site, book: c.Book, config: c.config}
	// Names change every so often: a history is short enough to be checked whole.
	stop := make(chan struct{})
	var clock sync.WaitGroup
	clock.Go(func() {
		c.Book.Feel(func() bool {
			select {
			case <-stop:
				return true
			default:
				c.Book.Round.Store((harness.Now() - c.Began) / int64(generationTime))
				return false
			}
		})
	})
	t.Cleanup(func() { close(stop); clock.Wait() })
	return c
}

// generationTime is two leases: a visit that holds on to a permit does so beside others.
const generationTime = 4 * time.Second

// start starts a worker process with a client, on one side of the wires, and waits until it is at work.
func (c *crew) start(client string, side int) int {
	c.t.Helper()
	config := c.config
	config.Process, config.Client, config.Site.Wires = len(c.Members), client, c.site.sides[side]
	c.configs = append(c.configs, config)
	return c.Start(harness.Self(workerEnv, config))
}

// startAll starts as many of each client on each side.
func (c *crew) startAll() {
	c.t.Helper()
	for side := range 2 {
		for _, client := range harness.Libraries {
			c.start(client, side)
		}
	}
}

// replace starts a process in the place of one that is gone.
func (c *crew) replace(p int) {
	c.t.Helper()
	side := 0
	if len(c.site.sides) > 1 && fmt.Sprint(c.configs[p].Site.Wires) == fmt.Sprint(c.site.sides[1]) {
		side = 1
	}
	c.start(c.configs[p].Client, side)
}

// alive are the processes that were not killed.
func (c *crew) alive() (all []int) {
	for p, m := range c.Members {
		if !m.Killed {
			all = append(all, p)
		}
	}
	return all
}

// any picks one of those, other than.
func (c *crew) any(other ...int) int {
	all := slices.DeleteFunc(c.alive(), func(p int) bool { return slices.Contains(other, p) })
	return all[c.rand.IntN(len(all))]
}

// between is a time between two, from the seed.
func (c *crew) between(from, to time.Duration) time.Duration {
	return from + time.Duration(c.rand.Int64N(int64(to-from)))
}

// hang has the goroutine of process p that gets next into a lock that all want stay there, and
// returns its entry; nil if none does for long.
func (c *crew) hang(p int) *harness.Entry { return c.Hang(p, 20*time.Second) }

// freeze stops process p for so long.
func (c *crew) freeze(p int, d time.Duration, f *harness.Fault) {
	c.t.Helper()
	f.From = harness.Now()
	harness.OK(c.t, c.Members[p].Freeze())
	pass(d)
	f.To = harness.Now()
	harness.OK(c.t, c.Members[p].Thaw())
}

// kill kills process p.
func (c *crew) kill(p int, f *harness.Fault) {
	c.t.Helper()
	f.From = harness.Now()
	c.Members[p].Kill()
	f.To = harness.Now()
}

// progress awaits some visits that get in from now on, in processes of both sides, and notes when the first did.
func (c *crew) progress(what string) {
	c.t.Helper()
	first := c.Progress(what, 1000, patience) // a waiter has an entry
	for i := range c.Faults {
		if f := &c.Faults[i]; f.Again == 0 {
			f.Again = first
		}
	}
}

// mostStrays is in how many processes of a run rueidis may leave a connection of its own: see leaks. More
// would be one of ours.
var mostStrays = map[string]int64{sentinels: harness.MaxProcesses, cluster: 1}

// finish ends all workers and checks that they end well, and leave nothing behind.
func (c *crew) finish() {
	c.t.Helper()
	c.illEnds += c.Finish()
	if n := c.Book.Strays.Load(); n > mostStrays[c.site.kind] {
		c.illEnds += int(n)
		c.t.Errorf("%d processes left connections of rueidis's behind", n)
	}
	harness.ErrorIf(c.t, c.Book.Round.Load()*generation > harness.MaxNames,
		"the fenced store is full: the run was too long for it")
}

// left checks that no lock is left in the store when all have ended, after a lease, nor anything else of them but
// the counters of tokens, for two minutes what was answered to makers of permits, permits, none of them out, and
// places and entries in queues that dead processes left behind.
func (c *crew) left() {
	c.t.Helper()
	visits := c.Book.All()
	var left []string
	gone := harness.Awaits(time.Duration(c.rules.Lease)+patience, func() bool {
		left = nil
		for _, n := range c.site.masters() {
			keys, err := n.server.Do("KEYS", "*"+c.config.Prefix+"*")
			if err != nil {
				left = append(left, err.Error())
				continue
			}
			for _, k := range keys.([]any) {
				key := k.(string)
				name, err := strconv.ParseInt(strings.TrimPrefix(key, c.config.Prefix), 10, 64)
				switch {
				case strings.HasPrefix(key, "redisson_lock_token:") || strings.HasPrefix(key, "mortise:1:once:"):
				case err == nil && shapeOf(name) == harness.Permits:
					if n, err := c.permits.of(key).Available(context.Background()); n != permitsMade {
						left = append(left, fmt.Sprintf("%s: %d of %d permits, %v;", key, n, permitsMade, err))
					}
				case c.deadPlaces(n, key, visits), c.deadEntries(n, key, visits):
				default:
					left = append(left, key)
				}
			}
		}
		return len(left) == 0
	})
	if !gone {
		c.remains = left
		c.t.Errorf("locks without a holder are left: %s", strings.Join(left, " "))
	}
}

// deadPlaces tells whether key is of a fair lock's queue in which only waiters stand that were killed, whose
// leaving the store forgot, or whose time is over: a request that the network kept for longer than it is undone.
// No waiter has come since, which would have taken them out; and the key ends by itself.
func (c *crew) deadPlaces(n *node, key string, visits []harness.Visit) bool {
	tag, queue := strings.CutPrefix(key, "redisson_lock_queue:")
	if !queue {
		var times bool
		if tag, times = strings.CutPrefix(key, "redisson_lock_timeout:"); !times {
			return false
		}
	}
	if ttl, err := n.server.Do("PTTL", key); err != nil || ttl == int64(-1) {
		return false
	}
	_, name, _ := strings.Cut(strings.TrimSuffix(tag, "}"), c.config.Prefix)
	if c.forgot(name, visits) {
		return true
	}
	places, err := n.server.Do("LRANGE", "redisson_lock_queue:"+tag, "0", "-1")
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(places.([]any), func(p any) bool {
		dead := slices.ContainsFunc(c.Members, func(m *harness.Process) bool {
			return m.Killed && strings.Contains(p.(string), fmt.Sprintf("/%d/", m.Cmd.Process.Pid))
		})
		score, err := n.server.Do("ZSCORE", "redisson_lock_timeout:"+tag, p.(string))
		until, _ := strconv.ParseFloat(fmt.Sprint(score), 64)
		over := err == nil && score != nil && until <= float64(time.Now().UnixMilli())
		return !dead && !over
	})
}

// deadEntries tells whether key is of the queue of a lock, a read-write lock or permits, in which only entries are of
// processes that were killed, or whose leaving the store forgot. No call has come since, which would have dropped them;
// and the key ends by itself.
func (c *crew) deadEntries(n *node, key string, visits []harness.Visit) bool {
	queue := strings.HasPrefix(key, "mortise:1:next:{") || strings.HasPrefix(key, "mortise:1:wake:{")
	if ttl, err := n.server.Do("PTTL", key); !queue || err != nil || ttl == int64(-1) {
		return false
	}
	_, name, _ := strings.Cut(key, c.config.Prefix)
	name, _, _ = strings.Cut(name, "}")
	return c.forgot(name, visits) || slices.ContainsFunc(visits, func(x harness.Visit) bool {
		return fmt.Sprint(x.Name) == name && c.Members[x.Process].Killed
	})
}

// forgot tells whether a store forgot what it had confirmed, while a name was in use.
func (c *crew) forgot(name string, visits []harness.Visit) bool {
	var from, to int64 // when it was asked for
	for _, x := range visits {
		if fmt.Sprint(x.Name) == name {
			if from == 0 || x.Begun < from {
				from = x.Begun
			}
			to = max(to, x.Begun, x.Freed)
		}
	}
	return slices.ContainsFunc(c.Faults, func(f harness.Fault) bool {
		return f.Promise != harness.AllHolds && f.From <= to && f.To >= from
	})
}

// stuck reports whether a waiter waits for a lock that has been free for long.
func (c *crew) stuck() bool {
	visits, stalls, at := c.Book.All(), c.Book.Stalls(), harness.Now()
	type lock struct {
		free, waits int64
		taken       bool
	}
	locks := map[int64]*lock{}
	for _, x := range visits {
		l := locks[x.Name]
		if l == nil {
			l = new(lock)
			locks[x.Name] = l
		}
		switch {
		case x.Got == 0 && x.End == harness.Open && !c.Members[x.Process].Killed:
			if l.waits == 0 || x.Begun < l.waits {
				l.waits = x.Begun
			}
		case x.End == harness.Open && !c.Members[x.Process].Killed:
			l.taken = true
		default:
			l.free = max(l.free, x.Frees(c.rules.Lease))
		}
	}
	for _, l := range locks {
		due := max(l.free, l.waits)
		for _, f := range c.Faults {
			due = max(due, f.To)
		}
		if l.waits != 0 && !l.taken && (harness.Undisturbed(due, at, stalls) > c.rules.Slack || at-due > int64(patience/4)) {
			return true
		}
	}
	return false
}

// verdict judges what is in the ledger by now.
func (c *crew) verdict() harness.Verdict {
	return harness.Judge(c.Book.All(), c.Faults, c.Book.Stalls(), c.rules)
}

// pass lets time pass.
func pass(d time.Duration) { harness.SleepUntil(harness.Now() + int64(d)) }
