//go:build unix

package conformance

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/backendtest"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// waiting are the tests of what a cluster does differently: waiters, how it hears, what
// becomes of it when connections go, and lists. Those of leases that are short, or renewed often, are
// left to a single server: three of them are three times as long in coming.
var waiting = regexp.MustCompile(
	`^Rule08_|^Rule12_(Waiters|WhoeverWaits|FairWaiters|RW_Waiters|AWaiterGets)|^Rule15_.*Wait|` +
		`^Port_(EveryName|.*(Watch|Announce|Told|Flush))|^Port_(Describe|List)_|^Rule13_(Inspect|Locks)`)

// RunOnCluster runs a part of the suite on clusters of three masters. open returns a backend
// for one more client of the cluster with these addresses.
func RunOnCluster(t *testing.T, open func(t *testing.T, addrs []string) backend.Backend) {
	runOnCluster(t, open, waiting)
	t.Run("SlotsThatAreGivenLater", func(t *testing.T) { slotsLater(t, open) })
}

// slotsLater watches a name on a cluster whose only master has no slots when the client first asks for them.
func slotsLater(t *testing.T, open func(t *testing.T, addrs []string) backend.Backend) {
	t.Parallel()
	c := redistest.StartCluster(t, 1)
	s, told := c.Masters[0], make(watched, 1)
	s.Must("CLUSTER", "FLUSHSLOTS")
	s.Must("CONFIG", "RESETSTAT")
	session := check.Value(open(t, c.Addrs()).Open(told)).In(t)
	defer session.Close()
	session.Subscribe(backend.Topic{Kind: backend.KindLock, Name: "n"})
	for end := time.Now().Add(patience); s.Info("cmdstat_cluster|slots") == ""; time.Sleep(10 * time.Millisecond) {
		check.FatalIf(t, time.Now().After(end), "the client does not ask for the slots within %v", patience)
	}
	s.Must("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	select {
	case <-told:
	case <-time.After(patience):
		t.Fatalf("the name is not watched %v after the master has its slots", patience)
	}
}

// patience bounds what takes no time worth speaking of.
const patience = time.Minute

// watched is sent to when a name is watched.
type watched chan struct{}

func (w watched) Watching(backend.Topic) {
	select {
	case w <- struct{}{}:
	default:
	}
}
func (watched) Released(backend.Topic) {}
func (watched) Changed(backend.Topic)  {}
func (watched) ChangedAll()            {}

func runOnCluster(t *testing.T, open func(t *testing.T, addrs []string) backend.Backend, chosen *regexp.Regexp) {
	backendtest.RunSome(t, func(t *testing.T) backendtest.Store {
		return &cluster{t: t, servers: redistest.StartCluster(t, 3, redistest.WithAOF()), open: open}
	}, chosen.MatchString)
}

// fair are the tests of fair locks that depend on how the store tells a waiter of its turn, but for
// four of the port, whose subject is that it counts the clients it told: without sharded pub/sub no
// node of a cluster can. Those of semaphores and read-write locks that depend on it are there, too.
var fair = regexp.MustCompile(
	`^Port_Enrolment|^Port_(AFair(Lock|Try)|Leaving|OneWhoWas|APlace|Abandoning|AForced|APlain)|` +
		`^Rule(04|08|12|14)_.*(Fair|First|Enrolment)`)

// RunFairOnCluster runs the tests of fair locks, and of other queues whose clients are told, on clusters of three
// masters: for backends whose pub/sub is not sharded there.
func RunFairOnCluster(t *testing.T, open func(t *testing.T, addrs []string) backend.Backend) {
	runOnCluster(t, open, fair)
}

type cluster struct {
	t       *testing.T
	servers *redistest.Cluster
	open    func(t *testing.T, addrs []string) backend.Backend
}

func (c *cluster) Backend() backend.Backend { return c.open(c.t, c.servers.Addrs()) }
func (c *cluster) Delete(name string)       { c.at(name).Must("DEL", name) }
func (c *cluster) Occupy(name string)       { c.at(name).Must("SET", name, "no lock") }

// at is the master that has a name's slot.
func (c *cluster) at(name string) *redistest.Server {
	for _, s := range c.servers.Masters {
		if _, err := s.Do("TYPE", name); err == nil || !strings.HasPrefix(err.Error(), "MOVED ") {
			return s
		}
	}
	c.t.Fatalf("no master has %q", name)
	return nil
}

func (c *cluster) each(do func(s *store)) {
	for _, s := range c.servers.Masters {
		do(&store{t: c.t, server: s})
	}
}

func (c *cluster) Servers() int { return len(c.servers.Masters) }

func (c *cluster) Flush() { c.each((*store).Flush) }
func (c *cluster) Down()  { c.each((*store).Down) }
func (c *cluster) Cut()   { c.each((*store).Cut) }

func (c *cluster) Up() {
	c.each((*store).Up)
	c.servers.Settle()
}

func (c *cluster) Connections() (n int) {
	c.each(func(s *store) { n += s.Connections() })
	return n
}
