package deploy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// Who may not ask whether the servers know sharded pub/sub goes on without it. Who may needs all
// of the row of clusters, and where something is missing, the error says so.
func TestTheLeastUserOnACluster(t *testing.T) {
	t.Parallel()
	rows := permissions(t, least)
	kinds := slices.Concat(rows["every kind"], rows["locks, `LockAll`"])
	var extras []string
	for _, row := range permissions(t, optional) {
		extras = append(extras, row...)
	}
	c := redistest.StartCluster(t, 3)
	each(t, func(t *testing.T, s stack) {
		needed := rows[clusters]
		if s.name != "go-redis" && c.Masters[0].Major() >= 8 {
			needed = slices.Concat(needed, rows[newer])
		}
		n := 0
		once := func(rules []string) error {
			n++
			as := strings.ReplaceAll(fmt.Sprint(s.name, n), "/", "-")
			for _, m := range c.Masters {
				m.Must(slices.Concat([]string{"ACL", "SETUSER", as, "on", ">" + password, "resetchannels"}, rules)...)
			}
			at := clustered(c).as(as, password)
			ctx := within(t, patience)
			a, b := client(t, s.open(t, at)), client(t, s.open(t, at))
			if err := a.Ping(ctx); err != nil {
				return err
			}
			name := fmt.Sprint("orders:", s.name, n)
			lease, err := a.Lock(ctx, name)
			if err != nil {
				return err
			}
			done := waiting(b, ctx, name)
			for !listens(c, name) {
				select {
				case err := <-done:
					return fmt.Errorf("it does not wait: %w", err)
				default:
				}
			}
			if err := lease.Unlock(ctx); err != nil {
				return err
			}
			return <-done
		}
		visit := func(rules []string) error { return persist(func() error { return once(rules) }) }
		harness.Checkf(t, visit(slices.Concat(kinds, needed)), "the row is not enough")
		harness.OKf(t, visit(slices.Concat(kinds, needed, extras)), "with all that may be left out")
		for i, rule := range needed {
			err := visit(slices.Concat(kinds, needed[:i], needed[i+1:], extras))
			if err == nil {
				t.Errorf("%s is not needed", rule)
			} else if !permission(err) {
				t.Errorf("without %s the error does not say what to do: %v", rule, err)
			}
		}
	})
}

// listens tells whether somebody listens for releases of a name, sharded or not.
func listens(c *redistest.Cluster, name string) bool {
	return slices.ContainsFunc(c.Masters, func(m *redistest.Server) bool {
		for _, kind := range []string{"CHANNELS", "SHARDCHANNELS"} {
			all, err := m.Do("PUBSUB", kind)
			if err == nil && strings.Contains(fmt.Sprint(all), name) {
				return true
			}
		}
		return false
	})
}
