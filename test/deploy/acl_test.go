package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/conformance"
	"github.com/mortise-go/mortise/scripts"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// user and password are those of the Redis user under test.
const user, password = "locks", "secret"

// permissions are the table of docs/reference/deployments.md: what a Redis user needs for what.
func permissions(t *testing.T, heading string) map[string][]string {
	t.Helper()
	text := harness.Must(os.ReadFile("../../docs/reference/deployments.md"))(t)
	_, section, found := strings.Cut(string(text), "# "+heading+"\n")
	harness.FatalIf(t, !found, "docs/reference/deployments.md has no section %q", heading)
	section, _, _ = strings.Cut(section, "\n#")
	rows := map[string][]string{}
	for line := range strings.Lines(section) {
		name, _, row := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !row {
			continue
		}
		for _, quoted := range regexp.MustCompile("`[~&+][^`]*`").FindAllString(line, -1) {
			rows[name] = append(rows[name], strings.Fields(strings.ReplaceAll(strings.Trim(quoted, "`"), `\|`, "|"))...)
		}
	}
	harness.FatalIf(t, len(rows) == 0, "no table under %q", heading)
	return rows
}

const (
	least    = "The least ACL"
	optional = "What may be left out"
	// Rows that have tests of their own.
	clusters  = "clusters"
	newer     = "clusters of Redis 8, Valkey 8 or newer, by rueidis or valkey-go"
	sentinels = "Sentinel, by rueidis or valkey-go"
)

// suiteUser may run every command of the tables, on keys of any name, and nothing else.
func suiteUser(t *testing.T) string {
	rules := []string{user, "on", ">" + password, "~*", "&redisson_*"}
	for _, rows := range []map[string][]string{permissions(t, least), permissions(t, optional)} {
		for _, row := range rows {
			for _, rule := range row {
				if rule[0] == '+' && !slices.Contains(rules, rule) {
					rules = append(rules, rule)
				}
			}
		}
	}
	return strings.Join(rules, " ")
}

// The whole suite, over TLS with certificates on both sides, as a user with the permissions of
// docs/reference/deployments.md; of valkey-go, which is rueidis with other names, what is about connections.
func TestTheSuiteOverTLSAsTheLeastUser(t *testing.T) {
	t.Parallel()
	x, acl := redistest.NewTLS(t), suiteUser(t)
	each(t, func(t *testing.T, s stack) {
		chosen := func(name string) bool { return s.name != "valkey-go" || connecting.MatchString(name) }
		conformance.RunSomeOn(t, []redistest.Option{redistest.WithTLS(x), redistest.WithACL(acl)},
			func(t *testing.T, srv *redistest.Server) backend.Backend {
				at := server(srv.TLSAddr()).as(user, password)
				at.TLS = x.Config()
				return s.open(t, at)
			}, chosen)
	})
}

// The tables name each command that a script calls.
func TestTheTablesHaveEveryCommandOfTheScripts(t *testing.T) {
	acl := strings.Fields(suiteUser(t))
	for _, s := range scripts.All {
		for _, call := range regexp.MustCompile(`redis\.p?call\('([a-z]+)'`).FindAllStringSubmatch(s.Source, -1) {
			named := slices.ContainsFunc(acl, func(rule string) bool {
				return rule == "+"+call[1] || strings.HasPrefix(rule, "+"+call[1]+"|")
			})
			harness.ErrorIf(t, !named, "%s.lua calls %s, which docs/reference/deployments.md does not name", s.Name, call[1])
		}
	}
}

// The row of a feature, with the rows that it needs, has each command that the scripts of the feature call, and without
// which they fail: where a redis.pcall is refused, the script goes on.
func TestEachRowHasTheCommandsThatItsScriptsNeed(t *testing.T) {
	const (
		locks     = "locks, `LockAll`"
		tokens    = "fencing tokens"
		fair      = "fair locks"
		force     = "`ForceUnlock`"
		entered   = "locks entered from another process (`WithDelegations`)"
		drawn     = "... whose caller has a fencing token"
		counting  = "counting semaphores"
		latches   = "count-down latches"
		proclaims = "`Proclaim`, `Proclamations`; package leader, which needs fencing tokens besides"
	)
	rows, calls := permissions(t, least), regexp.MustCompile(`redis\.call\('([a-z]+)'`)
	tried := map[string]bool{}
	for _, x := range []struct{ rows, scripts []string }{
		{[]string{locks}, []string{"acquire", "joint", "release", "release_all", "renew", "leave_queue"}},
		{[]string{tokens, locks}, []string{"acquire_fenced", "acquire_all", "enrol", "serve", "reenter"}},
		{[]string{fair}, []string{"fair_acquire", "fair_leave", "fair_release", "reenter", "renew"}},
		{[]string{"`Inspect`", locks}, []string{"inspect"}},
		{[]string{force, locks}, []string{"force_release"}},
		{[]string{force, fair}, []string{"force_release"}},
		{[]string{drawn, entered, tokens, locks}, []string{"delegate_enter", "delegate_renew", "delegate_release"}},
		{[]string{drawn, entered, fair}, []string{"delegate_enter", "delegate_renew", "delegate_release"}},
		{[]string{"read-write locks"}, []string{"read_acquire", "read_enter", "read_release", "read_renew", "write_acquire",
			"write_release", "rw_force_release", "rw_inspect", "rw_leave", "rw_withdraw"}},
		{[]string{counting}, []string{"count", "semaphore_add", "semaphore_cancel", "semaphore_drain", "semaphore_leave",
			"semaphore_set", "semaphore_take"}},
		{[]string{"`Delete` of semaphores of both kinds", counting}, []string{"semaphore_delete"}},
		{[]string{"`Delete` of semaphores of both kinds", "semaphores"}, []string{"semaphore_delete"}},
		{[]string{"semaphores"}, []string{"permits_acquire", "permits_count", "permits_inspect", "permits_release",
			"permits_renew", "permits_set"}},
		{[]string{latches}, []string{"count", "latch_count_down", "latch_delete", "latch_set"}},
		{[]string{proclaims, locks}, []string{"proclaim", "proclaimed"}},
		{[]string{"`ClaimTick`, package once"}, []string{"claim_tick"}},
		{[]string{"`Quorum`, on each server", locks}, []string{"aged_acquire"}},
	} {
		may := slices.Clone(rows["every kind"])
		for _, row := range x.rows {
			harness.FatalIf(t, len(rows[row]) == 0, "docs/reference/deployments.md has no row %q", row)
			may = append(may, rows[row]...)
		}
		for _, name := range x.scripts {
			tried[name] = true
			at := slices.IndexFunc(scripts.All, func(s scripts.Script) bool { return s.Name == name })
			for _, call := range calls.FindAllStringSubmatch(scripts.All[at].Source, -1) {
				harness.ErrorIf(t, !slices.Contains(may, "+"+call[1]), "%s.lua calls %s, which the rows %q lack",
					name, call[1], x.rows)
			}
		}
	}
	for _, s := range scripts.All {
		harness.ErrorIf(t, !tried[s.Name], "no row stands for %s.lua", s.Name)
	}
}

// A user whose row was made for a name with braces of its own may use each feature on it.
func TestTheRowsForNamesWithBracesAreEnough(t *testing.T) {
	t.Parallel()
	rows := permissions(t, least)
	own := func(rule string) string { // as the page says
		if strings.Contains(rule, "redisson_countdownlatch__channel__") {
			return rule
		}
		return strings.Replace(rule, "{orders:", "orders:", 1)
	}
	each(t, func(t *testing.T, s stack) {
		srv := redistest.Start(t)
		n := 0
		for row, tour := range tours {
			if row == "`Quorum`, on each server" || row == "... with `WithRejoinScope(\"orders\")`" || row == "`WithReplicas`" {
				continue // nothing in these rows has braces
			}
			n++
			as, rules := fmt.Sprint("braces", n), []string{}
			for _, other := range append(tour.besides, row) {
				for _, rule := range rows[other] {
					rules = append(rules, own(rule))
				}
			}
			v := visit(t, s, srv, as, rules)
			v.name, v.enough = fmt.Sprintf("orders:{%d}", n), true
			v.listening = func() bool { return strings.Contains(fmt.Sprint(srv.Must("PUBSUB", "CHANNELS")), v.name) }
			harness.OKf(t, v.tour(tour.go_), "%s", row)
			v.leave()
		}
	})
}

// The user that is shown for copying is that of the rows that it is shown for.
func TestTheUserThatIsShownIsTheTables(t *testing.T) {
	text := harness.Must(os.ReadFile("../../docs/reference/deployments.md"))(t)
	_, shown, _ := strings.Cut(string(text), "ACL SETUSER locks on >secret resetchannels ")
	shown, _, _ = strings.Cut(shown, "```")
	rows := permissions(t, least)
	got, want := strings.Fields(shown), slices.Concat(rows["every kind"], rows["locks, `LockAll`"])
	slices.Sort(got)
	slices.Sort(want)
	harness.ErrorIf(t, !slices.Equal(got, want), "it is shown with\n%v\nthe table has\n%v", got, want)
}

// tours go through what a row of the table is about, each with two clients of the user and
// names that begin with orders:. A tour ends at its first error.
var tours = map[string]struct {
	besides []string // other rows that it needs
	go_     func(v *visitor)
}{
	"every kind":       {[]string{"locks, `LockAll`"}, tourLocks},
	"locks, `LockAll`": {[]string{"every kind"}, tourLocks},
	"fencing tokens":   {[]string{"every kind", "locks, `LockAll`"}, tourFenced},
	"`WithReplicas`":   {[]string{"every kind", "locks, `LockAll`"}, tourReplicas},
	"`Inspect`":        {[]string{"every kind", "locks, `LockAll`"}, tourInspect},
	"`ForceUnlock`":    {[]string{"every kind", "locks, `LockAll`"}, tourForce},
	"locks entered from another process (`WithDelegations`)": {[]string{"every kind", "locks, `LockAll`"}, tourNested},
	"... whose caller has a fencing token": {[]string{"every kind", "locks, `LockAll`", "fencing tokens",
		"locks entered from another process (`WithDelegations`)"}, tourNestedFenced},
	"fair locks":                           {[]string{"every kind"}, tourFair},
	"read-write locks":                     {[]string{"every kind"}, tourRW},
	"counting semaphores":                  {[]string{"every kind"}, tourCountingSemaphore},
	"semaphores":                           {[]string{"every kind"}, tourSemaphore},
	"`Delete` of semaphores of both kinds": {[]string{"every kind", "counting semaphores"}, tourDelete},
	"count-down latches":                   {[]string{"every kind"}, tourCountDownLatch},
	"`Proclaim`, `Proclamations`; package leader, which needs fencing tokens besides": {[]string{"every kind",
		"locks, `LockAll`"}, tourProclaim},
	"`ClaimTick`, package once":              {[]string{"every kind"}, tourTicks},
	"`Quorum`, on each server":               {[]string{"every kind", "locks, `LockAll`"}, tourQuorum},
	"... with `WithRejoinScope(\"orders\")`": {[]string{"every kind", "locks, `LockAll`"}, tourQuorumScope},
}

// visitor takes a tour.
type visitor struct {
	t    *testing.T
	ctx  context.Context
	srv  *redistest.Server
	open func(opts ...mortise.ClientOption) *mortise.Client
	a, b *mortise.Client
	as   string // the user, as the server knows it
	name string
	// enough is whether the user has what he needs.
	enough bool
	// listening reports whether a client waits for the name.
	listening func() bool

	clients []*mortise.Client
}

// visit makes a visitor with two clients of a new user, who may do what the rules say.
func visit(t *testing.T, s stack, srv *redistest.Server, as string, rules []string) *visitor {
	srv.Must(append([]string{"ACL", "SETUSER", as, "on", ">" + password, "resetchannels"}, rules...)...)
	v := &visitor{t: t, as: as, ctx: within(t, patience), srv: srv}
	v.open = func(opts ...mortise.ClientOption) *mortise.Client {
		locks := harness.Must(mortise.New(s.open(t, server(srv.Addr()).as(as, password)), opts...))(t)
		v.clients = append(v.clients, locks)
		return locks
	}
	v.a, v.b = v.open(), v.open()
	return v
}

// ends is what a tour panics with: its first error.
type ends struct{ error }

// try ends the tour if err is not nil.
func (v *visitor) try(err error) {
	if err != nil {
		panic(ends{err})
	}
}

// tour is the first error of a tour.
func (v *visitor) tour(take func(v *visitor)) (err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case ends:
			err = e.error
		default:
			panic(e)
		}
	}()
	take(v)
	return nil
}

// had is what a call returned, unless the tour ends with its error.
func had[V any](x V, err error) func(*visitor) V {
	return func(v *visitor) V {
		v.try(err)
		return x
	}
}

// leave closes the clients at once: what they may not give back, they would try to for long.
func (v *visitor) leave() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range v.clients {
		c.Shutdown(ctx)
	}
}

// Each row is enough for what it is about, and without any one of its permissions there is an
// error that names what is missing and says what to do.
func TestEachPermissionIsEnoughAndNeeded(t *testing.T) {
	t.Parallel()
	rows := permissions(t, least)
	for row := range rows {
		_, ok := tours[row]
		harness.ErrorIf(t, !ok && row != clusters && row != newer && row != sentinels, "nothing tries the row %q", row)
	}
	each(t, func(t *testing.T, s stack) {
		for row, tour := range tours {
			harness.Beside(t, row, func(t *testing.T) {
				harness.FatalIf(t, len(rows[row]) == 0, "docs/reference/deployments.md has no row %q", row)
				srv := redistest.Start(t)
				var others []string
				for _, other := range tour.besides {
					others = append(others, rows[other]...)
				}
				n := 0
				once := func(enough bool, rules []string) error {
					n++
					as := fmt.Sprint("user", n)
					v := visit(t, s, srv, as, rules)
					v.name, v.enough = fmt.Sprint("orders:", n), enough
					v.listening = func() bool { return strings.Contains(fmt.Sprint(srv.Must("PUBSUB", "CHANNELS")), v.name+"}") }
					defer v.leave()
					return v.tour(tour.go_)
				}
				try := func(enough bool, rules []string) error { return persist(func() error { return once(enough, rules) }) }
				harness.OKf(t, try(true, slices.Concat(others, rows[row])), "the row is not enough")
				for i, rule := range rows[row] {
					if slices.Contains(others, rule) {
						t.Errorf("%s is in another row that this one needs", rule)
						continue
					}
					srv.Must("ACL", "LOG", "RESET")
					err := try(false, slices.Concat(others, rows[row][:i], rows[row][i+1:]))
					if err == nil && seldom[rule] {
						continue
					}
					if err == nil && !inBackground[rule] {
						t.Errorf("%s is not needed", rule)
						continue
					}
					// The server tells which user was refused what. It does not always tell the client.
					as := fmt.Sprint("user", n)
					eventually(t, "the server's log names "+rule, func() bool { return refused(srv, as, rule) })
					harness.ErrorIf(t, err != nil && !permission(err), "without %s the error does not say what to do: %v", rule, err)
				}
			})
		}
	})
}

// A wait for a name whose channel is forbidden fails. Other waits of its client go on, whether they began before or
// with it.
func TestAForbiddenChannelFailsTheWaitsForItsNameOnly(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s stack) {
		srv := redistest.Start(t, redistest.WithACL(user+" on >"+password+
			" resetchannels ~* +@all &redisson_lock__channel:{orders:*"))
		holder := client(t, s.open(t, server(srv.Addr())))
		locks := client(t, s.open(t, server(srv.Addr()).as(user, password)))
		hold := func(name string) *mortise.Lease { return harness.Must(holder.Lock(t.Context(), name))(t) }
		wait := func(name string) error {
			lease, err := locks.Lock(t.Context(), name, mortise.WithWait(patience))
			if err == nil {
				err = lease.Unlock(t.Context())
			}
			return err
		}
		hold("bills")
		held := []*mortise.Lease{hold("orders:0"), hold("orders:1"), hold("orders:2")}
		waits := make(chan error, len(held))
		go func() { waits <- wait("orders:0") }()
		eventually(t, "the wait is subscribed", func() bool {
			return strings.Contains(fmt.Sprint(srv.Must("PUBSUB", "CHANNELS")), "orders:0}")
		})
		for _, name := range []string{"orders:1", "orders:2"} {
			go func() { waits <- wait(name) }()
		}
		for range 3 {
			err := wait("bills")
			harness.ErrorIf(t, err == nil || !permission(err), "a wait that cannot be told of a release: %v", err)
		}
		for _, lease := range held {
			harness.OK(t, lease.Unlock(t.Context()))
		}
		for range held {
			harness.OK(t, <-waits)
		}
	})
}

// permission tells whether an error says that the user lacks a permission, and how to find which.
func permission(err error) bool {
	return strings.Contains(err.Error(), "the Redis user lacks a permission, ACL LOG on the server names the permission")
}

// persist repeats what fails for another reason: on a machine that is busy, commands time out.
func persist(visit func() error) error {
	for end := time.Now().Add(patience); ; {
		if err := visit(); err == nil || permission(err) || time.Now().After(end) {
			return err
		}
	}
}

// inBackground are commands that are sent for no caller that could be told: the waiter has gone.
var inBackground = map[string]bool{"+unsubscribe": true}

// seldom are commands that a tour does not come to each time: for the queue of a fair lock whose
// first place belongs to a waiter that left it meanwhile, or that died with more than two of them; and for
// waiters in turn, if one waited when another released, and more than one.
var seldom = map[string]bool{
	"+lrange": true, "+lpop": true, "+lrem": true,
	"+hlen": true, "+time": true, "+zadd": true, "+zrange": true, "+zrem": true,
}

// refused tells whether the server has refused a user what a rule permits.
func refused(srv *redistest.Server, as, rule string) bool {
	for _, entry := range srv.Must("ACL", "LOG").([]any) {
		fields := map[string]string{}
		for pair := range slices.Chunk(entry.([]any), 2) {
			fields[fmt.Sprint(pair[0])] = fmt.Sprint(pair[1])
		}
		pattern := strings.TrimSuffix(rule[1:], "*")
		if fields["username"] == as && (rule[0] == '+' && fields["object"] == pattern ||
			rule[0] != '+' && strings.HasPrefix(fields["object"], pattern)) {
			return true
		}
	}
	return false
}

// handOver has one wait for what another holds, until it listens, and then gives it back.
func (v *visitor) handOver(wait func(ctx context.Context) error, free func() error) {
	done, cancel := v.waits(wait)
	defer cancel()
	v.try(free())
	v.try(<-done)
}

// giveUp has one wait, until it listens, and then not any more.
func (v *visitor) giveUp(wait func(ctx context.Context) error) {
	done, cancel := v.waits(wait)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		v.try(errors.Join(errors.New("it did not give up"), err))
	}
}

func (v *visitor) waits(wait func(ctx context.Context) error) (<-chan error, context.CancelFunc) {
	ctx, cancel := context.WithCancel(v.ctx)
	done := make(chan error, 1)
	go func() { done <- wait(ctx) }()
	for !v.listening() {
		select {
		case err := <-done:
			cancel()
			v.try(errors.Join(errors.New("it does not wait"), err))
		case <-time.After(5 * time.Millisecond):
		}
	}
	return done, cancel
}

// taking returns a function that takes a lock and gives it back.
func taking(l mortise.Locker, name string) func(context.Context) error {
	return func(ctx context.Context) error {
		lease, err := l.Lock(ctx, name)
		if err != nil {
			return err
		}
		return lease.Unlock(ctx)
	}
}

func (v *visitor) lock(a, b mortise.Locker) {
	lease := had(a.Lock(v.ctx, v.name))(v)
	v.handOver(taking(b, v.name), func() error { return lease.Unlock(v.ctx) })
}

func tourLocks(v *visitor) {
	v.try(v.a.Ping(v.ctx))
	v.srv.Must("SCRIPT", "FLUSH")
	v.try(mortise.Do(v.ctx, v.a, v.name, taking(v.a, v.name)))
	all := had(mortise.LockAll(v.ctx, mortise.Parts(v.a, v.name, v.name+"/2")))(v)
	v.try(all.Unlock(v.ctx))
	v.lock(v.a, v.b)
	// The waiter does not listen any more. That it may not is told to waiters only: here there is none.
	eventually(v.t, "they do not listen any more", func() bool {
		return !v.listening() || !v.enough && refused(v.srv, v.as, "+unsubscribe")
	})
}

// kinds are the lockers of a kind of both clients.
func (v *visitor) kinds(k ...mortise.LockerOption) (a, b mortise.Locker) {
	return harness.Locker(v.t, v.a, k...), harness.Locker(v.t, v.b, k...)
}

func tourFenced(v *visitor) { v.lock(v.kinds(mortise.Fenced())) }

// tourReplicas is over when it is told that there are none.
func tourReplicas(v *visitor) {
	_, err := v.a.Lock(v.ctx, v.name, mortise.WithReplicas(1, 10*time.Millisecond))
	if !errors.Is(err, mortise.ErrNotReplicated) {
		v.try(errors.Join(errors.New("it did not wait for replicas"), err))
	}
}

func tourInspect(v *visitor) {
	lease := had(v.a.Lock(v.ctx, v.name))(v)
	defer lease.Unlock(v.ctx)
	had(v.b.Inspect(v.ctx, v.name))(v)
}

func tourForce(v *visitor) {
	had(v.a.Lock(v.ctx, v.name))(v)
	had(v.b.ForceUnlock(v.ctx, v.name))(v)
}

func tourNested(v *visitor) { v.nested(v.a) }

func tourNestedFenced(v *visitor) {
	fenced, _ := v.kinds(mortise.Fenced())
	v.nested(fenced)
}

func (v *visitor) nested(caller mortise.Locker) {
	outer := had(caller.Lock(v.ctx, v.name))(v)
	ctx := had(v.b.WithDelegations(v.ctx, mortise.Delegations(outer.Context())...))(v)
	inner := had(v.b.Lock(ctx, v.name))(v)
	had(v.a.Inspect(v.ctx, v.name))(v)
	v.try(inner.Unlock(v.ctx))
	v.try(outer.Unlock(v.ctx))
}

func tourFair(v *visitor) {
	a, b := v.kinds(mortise.Fair(), mortise.Fenced())
	v.lock(a, b)
	// One gives up, and leaves the queue. Where it may not, no waiter stands behind it.
	lease := had(a.Lock(v.ctx, v.name))(v)
	v.giveUp(taking(b, v.name))
	if v.enough {
		eventually(v.t, "the queue is empty", func() bool {
			return v.srv.Must("EXISTS", "redisson_lock_queue:{"+v.name+"}") == int64(0)
		})
	}
	v.try(lease.Unlock(v.ctx))
}

func tourRW(v *visitor) {
	readA, writeA := v.a.RW().Read, v.a.RW().Write
	readB, writeB := v.b.RW().Read, v.b.RW().Write
	// A writer that reads as well, and goes on as a reader.
	wrote := had(writeA.Lock(v.ctx, v.name))(v)
	read := had(readA.Lock(wrote.Context(), v.name))(v)
	v.handOver(taking(readB, v.name), func() error { return wrote.Unlock(v.ctx) })
	// A writer that waits for it, and one that gives up.
	v.giveUp(taking(writeB, v.name))
	v.handOver(taking(writeB, v.name), func() error { return read.Unlock(v.ctx) })
	outer := had(writeA.Lock(v.ctx, v.name))(v)
	v.try(mortise.Do(outer.Context(), writeA, v.name, func(context.Context) error { return nil }))
	had(v.b.RW().Inspect(v.ctx, v.name))(v)
	had(v.b.RW().ForceUnlock(v.ctx, v.name))(v)
}

func tourCountingSemaphore(v *visitor) {
	a, b := v.a.CountingSemaphore(v.name), v.b.CountingSemaphore(v.name)
	had(a.TrySetPermits(v.ctx, 1))(v)
	v.try(a.Acquire(v.ctx, 1))
	v.handOver(func(ctx context.Context) error { return b.Acquire(ctx, 1) }, func() error { return a.Release(v.ctx, 1) })
	v.try(a.AddPermits(v.ctx, 2))
	had(a.Drain(v.ctx))(v)
	had(a.Available(v.ctx))(v)
}

func tourSemaphore(v *visitor) {
	a, b := v.a.Semaphore(v.name, 0), v.b.Semaphore(v.name, 0)
	had(a.TrySetPermits(v.ctx, 1))(v)
	v.srv.Must("PEXPIRE", v.name, "3600000") // as Redisson may
	permit := had(a.Acquire(v.ctx, 1))(v)
	v.handOver(func(ctx context.Context) error {
		p, err := b.Acquire(ctx, 1)
		if err != nil {
			return err
		}
		return p.Release(ctx)
	}, func() error { return permit.Release(v.ctx) })
	v.try(a.AddPermits(v.ctx, 1))
	v.try(a.SetPermits(v.ctx, 3))
	had(v.a.Semaphore(v.name, 4).TryAcquire(v.ctx, 2))(v)
	had(a.Inspect(v.ctx))(v)
	had(a.Available(v.ctx))(v)
}

func tourDelete(v *visitor) {
	a := v.a.CountingSemaphore(v.name)
	had(a.TrySetPermits(v.ctx, 1))(v)
	had(a.Delete(v.ctx))(v)
}

func tourCountDownLatch(v *visitor) {
	a, b := v.a.CountDownLatch(v.name), v.b.CountDownLatch(v.name)
	had(a.TrySet(v.ctx, 2))(v)
	v.try(a.CountDown(v.ctx))
	v.handOver(func(ctx context.Context) error { return b.Wait(ctx) }, func() error { return a.CountDown(v.ctx) })
	had(a.TrySet(v.ctx, 1))(v)
	had(b.Count(v.ctx))(v)
	had(a.Delete(v.ctx))(v)
}

// tourQuorum has three clients of one server in place of three servers: their users are the same.
func tourQuorum(v *visitor) {
	v.srv.Must("DEL", "mortise:1:since")
	tourOf(v, v.a, v.b, v.open())
}

func tourQuorumScope(v *visitor) {
	v.srv.Must("DEL", "mortise:1:since:orders")
	scope := mortise.WithRejoinScope("orders")
	tourOf(v, v.open(scope), v.open(scope), v.open(scope))
}

func tourOf(v *visitor, clients ...*mortise.Client) {
	quorum := had(mortise.Quorum(clients...))(v)
	var err error
	for v.ctx.Err() == nil {
		_, err = quorum.TryLock(v.ctx, v.name)
		if errors.Is(err, mortise.ErrUnavailable) && strings.Contains(err.Error(), "have no vote") {
			return // these stores are new, and said so
		}
		if permission(err) {
			break
		}
		// On a machine that stands still, no store answers within a second.
	}
	v.try(err)
}

func tourProclaim(v *visitor) {
	lease := had(v.a.Lock(v.ctx, v.name))(v)
	v.handOver(func(ctx context.Context) error {
		for p, err := range v.b.Proclamations(ctx, v.name) {
			if err != nil || p.Text == "here" {
				return err
			}
		}
		return context.Cause(ctx)
	}, func() error { return lease.Proclaim(v.ctx, "here") })
	v.try(lease.Proclaim(v.ctx, ""))
	v.try(lease.Unlock(v.ctx))
}

func tourTicks(v *visitor) {
	for n := range 2 { // the first tick that is granted is the second of a name
		tick := had(v.a.ClaimTick(v.ctx, v.name, mortise.TickRequest{ID: fmt.Sprint(n), Interval: 100 * time.Millisecond}))(v)
		time.Sleep(tick.Next) // that time is the subject
	}
	had(v.b.ClaimTick(v.ctx, v.name, mortise.TickRequest{ID: "b", Interval: time.Hour}))(v)
}
