//go:build linux

package chaos

import (
	"context"
	"testing"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/semaphore"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// permits have to be made. Workers do that before each visit, but where the store has forgotten that
// there were any, waiters wait for another to make them: for an operator, which the test is.
type permits struct {
	t      *testing.T
	site   *site
	book   *harness.Ledger
	config workerConfig
	client *mortise.Client // the test's own, past all wires; nil until it is needed
}

// of is the semaphore of a key.
func (p *permits) of(key string) *semaphore.Semaphore {
	p.t.Helper()
	if p.client == nil {
		p.client = harness.Client(p.t, p.site.clients.Backend(p.t, harness.GoRedis))
	}
	return semaphore.New(p.client, key, 0)
}

// since are the names of permits from a generation on, and those that are waited for.
func (p *permits) since(first int64) map[int64]bool {
	all := map[int64]bool{}
	for name := max(0, first) * generation; name < (p.book.Round.Load()+1)*generation; name++ {
		all[name] = true
	}
	for i := range p.book.Count() {
		if e := &p.book.Entries[i]; e.Begun.Load() != 0 && e.End.Load() == harness.Open {
			all[e.Name.Load()] = true
		}
	}
	for name := range all {
		if shapeOf(name) != harness.Permits {
			delete(all, name)
		}
	}
	return all
}

// restore makes those that are no more.
func (p *permits) restore() {
	p.t.Helper()
	if p.config.Lock != "" {
		return
	}
	for name := range p.since(p.book.Round.Load() - 1) {
		s := p.of(p.config.key(name))
		harness.Await(p.t, patience, "permits are made", func() bool {
			_, err := s.TrySetPermits(context.Background(), permitsMade)
			return err == nil
		})
	}
}

// permitsOut is the key of those that are out.
func permitsOut(key string) string { return "{" + key + "}:timeout" }

// remove removes them, those that are out too: of the two keys one may be gone, and then their number
// is wrong, and the other stays, until both are.
func (p *permits) remove() {
	p.t.Helper()
	for name := range p.since(0) {
		key := p.config.key(name)
		harness.Await(p.t, patience, "permits are removed", func() bool {
			_, err := p.site.serving(key).server.Do("DEL", key, permitsOut(key))
			return err == nil
		})
	}
}
