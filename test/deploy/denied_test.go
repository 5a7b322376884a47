package deploy_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/semaphore"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// fleets have the goroutines of a busy fleet hold once, all the same name. A feature without a fleet has its tour only.
var fleets = map[string]func(c *mortise.Client, ctx context.Context, name string) error{
	"locks": func(c *mortise.Client, ctx context.Context, name string) error {
		if err := mortise.Do(ctx, c, name, nothing); err != nil {
			return err
		}
		fenced := c.With(mortise.Fenced())
		return mortise.Do(ctx, fenced, name, nothing)
	},
	"fair": func(c *mortise.Client, ctx context.Context, name string) error {
		fair := c.With(mortise.Fair())
		return mortise.Do(ctx, fair, name, nothing)
	},
	"rw": func(c *mortise.Client, ctx context.Context, name string) error {
		if err := mortise.Do(ctx, c.RW().Read, name, nothing); err != nil {
			return err
		}
		return mortise.Do(ctx, c.RW().Write, name, nothing)
	},
	"counting": func(c *mortise.Client, ctx context.Context, name string) error {
		s := semaphore.NewCounting(c, name)
		if _, err := s.TrySetPermits(ctx, 2); err != nil {
			return err
		}
		if err := s.Acquire(ctx, 1); err != nil {
			return err
		}
		return s.Release(ctx, 1)
	},
	"semaphores": func(c *mortise.Client, ctx context.Context, name string) error {
		permit, err := semaphore.New(c, name, 2).Acquire(ctx, 1)
		if err != nil {
			return err
		}
		return permit.Release(ctx)
	},
}

func nothing(context.Context) error { return nil }

// Under the rows that docs/reference/deployments.md recommends, the server denies a busy fleet nothing: not a command,
// a key or a channel, of a client or of a script.
func TestABusyFleetIsDeniedNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s stack) {
		for row, tour := range tours {
			harness.Beside(t, row+" on a server", func(t *testing.T) {
				srv := redistest.Start(t)
				at := server(srv.Addr())
				fleetIsDeniedNothing(t, s, at, []*redistest.Server{srv}, row, quiet(t, append(tour.besides, row)...))
			})
			if row == "quorum" {
				continue // of independent servers
			}
			harness.Beside(t, row+" on a cluster", func(t *testing.T) {
				c := redistest.StartCluster(t, 2)
				fleetIsDeniedNothing(t, s, clustered(c), c.Masters, row, quiet(t, append(tour.besides, row, "cluster")...))
			})
		}
	})
}

// fleetIsDeniedNothing has a fleet take the tour of a feature, and then hold the same name many times.
func fleetIsDeniedNothing(t *testing.T, s stack, at site, servers []*redistest.Server, row string, rules []string) {
	t.Helper()
	rules = append(rules, newer(t, servers[0])...)
	for _, srv := range servers {
		srv.Must(append([]string{"ACL", "SETUSER", user, "on", ">" + password, "resetkeys", "resetchannels", "-@all"},
			rules...)...)
	}
	v := &visitor{t: t, as: user, ctx: within(t, patience), srv: servers[0], cluster: servers, name: "orders:1",
		enough: true}
	v.open = func(opts ...mortise.ClientOption) *mortise.Client {
		return client(t, s.open(t, at.as(user, password)), opts...)
	}
	v.listening = func() bool {
		return slices.ContainsFunc(servers, func(srv *redistest.Server) bool {
			all := fmt.Sprint(srv.Must("PUBSUB", "CHANNELS"), srv.Must("PUBSUB", "SHARDCHANNELS"))
			return strings.Contains(all, v.name+"}") || strings.Contains(all, v.name+":")
		})
	}
	v.a, v.b = v.open(), v.open()
	harness.OKf(t, v.tour(tours[row].go_), "the tour")
	if hold := fleets[row]; hold != nil {
		const rounds = 20
		var all sync.WaitGroup
		for _, c := range []*mortise.Client{v.a, v.a, v.b, v.b} {
			all.Go(func() {
				for range rounds {
					harness.Check(t, hold(c, v.ctx, "orders:busy"))
				}
			})
		}
		all.Wait()
	}
	for _, srv := range servers {
		deniedNothing(t, srv)
	}
}

// newer returns the rules for what the server knows and Redis 7.0 does not.
func newer(t *testing.T, srv *redistest.Server) []string {
	t.Helper()
	if known := srv.Must("COMMAND", "INFO", "client|setinfo").([]any); known[0] == nil {
		return nil
	}
	return rulesOf("+", feature(t, "newer").May)
}

// deniedNothing fails the test if a server has denied anything since its start: in ACL LOG, which sums up equal
// entries, or as an error reply to a client.
func deniedNothing(t *testing.T, srv *redistest.Server) {
	t.Helper()
	info, err := srv.Do("INFO", "everything")
	if err != nil {
		return // a test has stopped it
	}
	for line := range strings.Lines(fmt.Sprint(info)) {
		harness.ErrorIf(t, strings.HasPrefix(line, "errorstat_NOPERM"), "the server answered NOPERM: %s", line)
	}
	for _, entry := range srv.Must("ACL", "LOG").([]any) {
		fields := map[string]string{}
		for pair := range slices.Chunk(entry.([]any), 2) {
			fields[fmt.Sprint(pair[0])] = fmt.Sprint(pair[1])
		}
		t.Errorf("the server denied the %s %s %s times", fields["reason"], fields["object"], fields["count"])
	}
}
