//go:build linux

package chaos

import (
	"context"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// Permits are made by somebody. Workers do that before each visit, but where the store has forgotten
// that there were any, those who wait already wait for somebody else: for an operator, which the test is.

// client is the test's own, past all wires. It lives as long as the test.
func (c *crew) client() *mortise.Client {
	c.t.Helper()
	if c.own != nil {
		return c.own
	}
	c.own = harness.Client(c.t, c.site.clients.Backend(c.t, harness.GoRedis))
	return c.own
}

// permitsSince are the names of permits from a generation on, and those that somebody waits for.
func (c *crew) permitsSince(first int64) map[int64]bool {
	all := map[int64]bool{}
	for name := max(0, first) * generation; name < (c.Book.Round.Load()+1)*generation; name++ {
		all[name] = true
	}
	for i := range c.Book.Count() {
		if e := &c.Book.Entries[i]; e.Begun.Load() != 0 && e.End.Load() == harness.Open {
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

// makePermits makes those that are no more.
func (c *crew) makePermits() {
	c.t.Helper()
	if c.config.Lock != "" {
		return
	}
	for name := range c.permitsSince(c.Book.Round.Load() - 1) {
		p := c.client().Permits(c.config.key(name))
		c.Await("permits are made", func() bool {
			_, err := p.TrySetPermits(context.Background(), permitsMade)
			return err == nil
		})
	}
}

// permitsOut is the key of those that are out.
func permitsOut(key string) string { return "{" + key + "}:timeout" }

// unmakePermits removes them, those that are out too: of the two keys one may be gone, and
// then their number is wrong, and the other stays, until both are.
func (c *crew) unmakePermits() {
	c.t.Helper()
	for name := range c.permitsSince(0) {
		key := c.config.key(name)
		c.Await("permits are removed", func() bool {
			_, err := c.site.serving(key).server.Do("DEL", key, permitsOut(key))
			return err == nil
		})
	}
}
