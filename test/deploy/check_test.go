package deploy_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/scripts"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// page is where remedies about permissions lead.
const page = ": see https://github.com/mortise-go/mortise/blob/main/docs/reference/deployments.md#permissions"

// findings are "name state: text; remedy" of what a check found, without those that are ok.
func findings(all []mortise.Finding) (lines []string) {
	for _, f := range all {
		if f.State != "ok" {
			lines = append(lines, strings.TrimSuffix(fmt.Sprintf("%s %s: %s; %s", f.Name, f.State, f.Text, f.Remedy), "; "))
		}
	}
	return lines
}

// allowed is the finding that says what a user may use.
func allowed(all []mortise.Finding) string {
	for _, f := range all {
		if f.Name == "permissions" && f.State == "ok" {
			return f.Text
		}
	}
	return ""
}

const (
	noPolicy = "eviction unknown: the user may not see the server's eviction policy; permit +info, or see that it is " +
		"noeviction"
	// onlyLocks are permissions of locks, which have those of delegations.
	onlyLocks = "the user may use locks, delegations; not "
	everyone  = "~* &* +@all"
)

// Each thing that keeps locks from working, or lets them be lost, is found, with its remedy. The check changes nothing,
// and the server denies it nothing.
func TestCheckFindsWhatKeepsLocksFromWorking(t *testing.T) {
	t.Parallel()
	without := func(rules []string, gone ...string) []string {
		return slices.DeleteFunc(slices.Clone(rules), func(rule string) bool { return slices.Contains(gone, rule) })
	}
	locks := quiet(t, "client", "locks")
	for _, c := range []struct {
		name   string
		rules  []string
		prefix string
		config [][]string // commands for the server
		want   []string
		may    string // a part of the finding about what the user may use
	}{
		{name: "every permission", rules: strings.Fields(everyone), prefix: "orders:", may: "the user may use locks, list, " +
			"replicas, delegations, proclamations, quorum, fair, rw, rwforce, counting, semaphores, latches, ticks"},
		{name: "every permission, and no prefix", rules: strings.Fields(everyone),
			may: "the user may use locks, list, replicas, "},
		{name: "the row of locks", rules: locks, prefix: "orders:", want: []string{noPolicy}, may: onlyLocks},
		{name: "the row of locks, and no prefix", rules: locks, want: []string{
			`permissions unknown: the user may not use a name such as "mortise-check", so nothing is known of locks, ` +
				"list, proclamations, fair, rw, rwforce, counting, semaphores, latches, ticks; " +
				"give the client WithPrefix, with what the " +
				"user's names begin with; see" +
				strings.TrimPrefix(page, ": see"), noPolicy}},
		{name: "no channels, as Redis makes a user", rules: strings.Fields("~* +@all"), prefix: "orders:", want: []string{
			"channels problem: locks: the user lacks &redisson_lock__channel:{orders:*; " +
				"ACL SETUSER <user> &redisson_lock__channel:{orders:*" + page,
			"channels problem: fair: the user lacks &redisson_lock__channel:{orders:*; " +
				"ACL SETUSER <user> &redisson_lock__channel:{orders:*" + page,
			"channels problem: rw: the user lacks &redisson_rwlock:{orders:*; " +
				"ACL SETUSER <user> &redisson_rwlock:{orders:*" + page,
			"channels problem: counting: the user lacks &redisson_sc:{orders:*; " +
				"ACL SETUSER <user> &redisson_sc:{orders:*" + page,
			"channels problem: semaphores: the user lacks &redisson_sc:{orders:*; " +
				"ACL SETUSER <user> &redisson_sc:{orders:*" + page,
			"channels problem: latches: the user lacks &redisson_countdownlatch__channel__{orders:*; " +
				"ACL SETUSER <user> &redisson_countdownlatch__channel__{orders:*" + page,
		}},
		{name: "a command is missing", rules: without(locks, "+hexists"), prefix: "orders:", want: []string{
			"permissions problem: locks: the user lacks +hexists; ACL SETUSER <user> +hexists" + page, noPolicy}},
		{name: "a key is missing", rules: without(locks, "~mortise:1:next:{orders:*"), prefix: "orders:", want: []string{
			"permissions problem: locks: the user lacks ~mortise:1:next:{orders:*; " +
				"ACL SETUSER <user> ~mortise:1:next:{orders:*" + page, noPolicy}},
		{name: "a command is missing that scripts can do without", rules: without(locks, "+lrange", "+hmget"),
			prefix: "orders:", want: []string{"permissions warning: locks: the server denies, and writes into ACL LOG, what " +
				"scripts try and can do without: +hmget +lrange; ACL SETUSER <user> +hmget +lrange" + page, noPolicy},
			may: onlyLocks},
		{name: "a user for semaphores", rules: quiet(t, "client", "semaphores"), prefix: "orders:", want: []string{noPolicy},
			may: "the user may use semaphores; not locks, "},
		{name: "a user for nothing", rules: quiet(t, "client"), prefix: "orders:", want: []string{
			"permissions problem: the user may use no kind of lock; permit what is needed" + page, noPolicy,
			"clock unknown: the user may not see the server's clock; permit +time, or see that it agrees with the clients' " +
				"clocks"}},
		{name: "a user that may not subscribe", rules: without(locks, "+subscribe"), prefix: "orders:", want: []string{
			"permissions problem: client: the user lacks +subscribe; ACL SETUSER <user> +subscribe" + page, noPolicy}},
		{name: "an eviction policy", rules: strings.Fields(everyone), prefix: "orders:",
			config: [][]string{{"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"}}, want: []string{
				"eviction warning: with the policy allkeys-lru a full server removes locks that are held; " +
					"CONFIG SET maxmemory-policy noeviction, or a server of its own for locks"}},
		{name: "a replica", rules: strings.Fields(everyone), prefix: "orders:",
			config: [][]string{{"REPLICAOF", "127.0.0.1", "1"}}, want: []string{
				"role problem: the server is a replica, and refuses writes; give the client the primary's address, or let the " +
					"client find the primary (Sentinel or Cluster)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s stack) {
				srv := redistest.Start(t)
				srv.Must(append([]string{"ACL", "SETUSER", user, "on", ">" + password, "resetkeys", "resetchannels", "-@all"},
					c.rules...)...)
				if known := srv.Must("COMMAND", "INFO", "client|setinfo").([]any); known[0] != nil {
					srv.Must("ACL", "SETUSER", user, "+client|setinfo")
				}
				for _, command := range c.config {
					srv.Must(command...)
				}
				var opts []mortise.ClientOption
				if c.prefix != "" {
					opts = append(opts, mortise.WithPrefix(c.prefix))
				}
				locks := client(t, s.open(t, server(srv.Addr()).as(user, password)), opts...)
				var all []mortise.Finding
				var err error
				harness.Awaits(patience, func() bool { // on a busy machine the library's time-outs may be over
					all, err = locks.Check(t.Context())
					return err == nil || all != nil
				})
				if got := findings(all); !slices.Equal(got, c.want) {
					t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
				}
				harness.ErrorIf(t, !strings.HasPrefix(allowed(all), c.may), "the user may use %q, want %q", allowed(all), c.may)
				problem := slices.ContainsFunc(c.want, func(w string) bool { return strings.Contains(w, " problem: ") })
				harness.ErrorIf(t, errors.Is(err, mortise.ErrUnavailable) != problem, "the error is %v", err)
				if problem {
					_, text, _ := strings.Cut(c.want[0], " problem: ")
					harness.ErrorIf(t, !strings.Contains(err.Error(), text), "the error does not tell: %v", err)
				}
				deniedNothing(t, srv)
				harness.ErrorIf(t, srv.Must("DBSIZE") != int64(0), "the check left keys: %v", srv.Must("KEYS", "*"))
			})
		})
	}
}

// Under each row that the page recommends, a check finds nothing wrong, on a server and on a cluster, and nothing is
// denied.
func TestCheckFindsNothingUnderTheRowsOfThePage(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s stack) {
		c, srv := redistest.StartCluster(t, 2), redistest.Start(t)
		for _, f := range scripts.Features {
			tour, ok := tours[f.Name]
			if !ok || f.Name == "client" {
				continue
			}
			rows := append(slices.Clone(tour.besides), f.Name)
			checkAs(t, s, server(srv.Addr()), []*redistest.Server{srv}, f.Name, rows)
			if f.Name != "quorum" {
				checkAs(t, s, clustered(c), c.Masters, f.Name, append(rows, "cluster"))
			}
		}
		deniedNothing(t, srv)
		for _, m := range c.Masters {
			deniedNothing(t, m)
		}
	})
}

func checkAs(t *testing.T, s stack, at site, servers []*redistest.Server, row string, rows []string) {
	t.Helper()
	for _, srv := range servers {
		if known := srv.Must("COMMAND", "INFO", "client|setinfo").([]any); known[0] != nil {
			rows = append(slices.Clone(rows), "newer")
		}
		srv.Must(append([]string{"ACL", "SETUSER", row, "on", ">" + password, "resetkeys", "resetchannels", "-@all"},
			quiet(t, rows...)...)...)
	}
	locks := client(t, s.open(t, at.as(row, password)), mortise.WithPrefix("orders:"))
	var all []mortise.Finding
	harness.Await(t, patience, "the check is answered", func() bool {
		all, _ = locks.Check(t.Context()) // on a busy machine the library's time-outs may be over
		return all != nil
	})
	wrong := findings(all)
	wrong = slices.DeleteFunc(wrong, func(line string) bool { return line == noPolicy })
	wrong = slices.DeleteFunc(wrong, func(line string) bool {
		// Another kind can be used, too, by a user that was not made for it.
		other := strings.HasPrefix(line, "permissions warning: ") && !strings.HasPrefix(line, "permissions warning: "+row+":")
		return other || strings.HasPrefix(line, "clock unknown")
	})
	harness.ErrorIf(t, len(wrong) > 0, "%s: %s", row, strings.Join(wrong, "\n"))
	harness.ErrorIf(t, !strings.Contains(allowed(all), row), "%s: the user may use %q", row, allowed(all))
}

// A node of a cluster whose user differs is named: Redis does not replicate ACLs.
func TestCheckNamesTheNodeWhoseUserDiffers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s stack) {
		c := redistest.StartCluster(t, 2)
		for i, m := range c.Masters {
			rules := quiet(t, "client", "locks", "cluster")
			if i == 1 {
				rules = slices.DeleteFunc(rules, func(rule string) bool { return rule == "+pexpire" })
			}
			m.Must(append([]string{"ACL", "SETUSER", user, "on", ">" + password, "resetchannels"}, rules...)...)
		}
		locks := client(t, s.open(t, clustered(c).as(user, password)), mortise.WithPrefix("orders:"))
		var all []mortise.Finding
		harness.Awaits(patience, func() bool {
			all, _ = locks.Check(t.Context())
			return all != nil
		})
		want := fmt.Sprintf("permissions problem: at %s: locks: the user lacks +pexpire; ACL SETUSER <user> +pexpire%s",
			c.Masters[1].Addr(), page)
		got := findings(all)
		harness.ErrorIf(t, !slices.Contains(got, want), "got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	})
}

// A check of a client whose server does not answer ends with its context, and one of a stopped server says so.
func TestCheckOfAServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s stack) {
		srv := redistest.Start(t)
		locks := ready(t, s.open(t, server(srv.Addr())))
		srv.Stop()
		all, err := locks.Check(within(t, patience))
		harness.ErrorIf(t, all != nil || !errors.Is(err, mortise.ErrUnavailable), "a server that is down: %v %v", all, err)
		harness.OK(t, locks.Shutdown(within(t, time.Minute)))
		_, err = locks.Check(t.Context())
		harness.CheckIs(t, err, mortise.ErrClosed)
	})
}
