package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/conformance"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/leader"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/once"
	"github.com/mortise-go/mortise/quorum"
	"github.com/mortise-go/mortise/scripts"
	"github.com/mortise-go/mortise/semaphore"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// user and password are those of the Redis user under test.
const user, password = "locks", "secret"

// feature returns what a user must be permitted for a feature: a row of docs/reference/deployments.md.
func feature(t *testing.T, name string) scripts.Feature {
	t.Helper()
	i := slices.IndexFunc(scripts.Features, func(f scripts.Feature) bool { return f.Name == name })
	harness.FatalIf(t, i < 0, "there is no feature %q", name)
	return scripts.Features[i]
}

// least returns the rules of features for names that begin with orders:, without which something fails.
func least(t *testing.T, features ...string) (rules []string) {
	t.Helper()
	for _, name := range features {
		f := feature(t, name)
		for sign, words := range map[string][]string{"~": f.Keys, "&": f.Channels, "+": f.Must} {
			rules = append(rules, rulesOf(sign, words)...)
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

// quiet returns the rules of features under which no command is denied.
func quiet(t *testing.T, features ...string) (rules []string) {
	t.Helper()
	for _, name := range features {
		f := feature(t, name)
		rules = slices.Concat(rules, least(t, name), rulesOf("~", f.MayKeys), rulesOf("+", f.May))
	}
	return rules
}

func rulesOf(sign string, words []string) (rules []string) {
	for _, w := range words {
		rules = append(rules, sign+orders(sign, w))
	}
	return rules
}

// orders puts the beginning of the names into the place of NAME in a pattern.
func orders(sign, word string) string {
	if sign == "+" {
		return word
	}
	return strings.Replace(word, "NAME", "orders:*", 1)
}

// suiteUser may run every command of the rows, on keys of any name, and what others say, and nothing else.
func suiteUser(t *testing.T, others ...string) string {
	rules := append([]string{user, "on", ">" + password, "~*", "&redisson_*"}, others...)
	for _, f := range scripts.Features {
		for _, rule := range quiet(t, f.Name) {
			if rule[0] == '+' && f.Name != "newer" && !slices.Contains(rules, rule) {
				rules = append(rules, rule)
			}
		}
	}
	return strings.Join(rules, " ")
}

// The whole suite, over TLS with certificates on both sides, as a user with the permissions of
// docs/reference/deployments.md; of valkey-go, which is rueidis with other names, what is about connections.
func TestTheSuiteOverTLSAsTheLeastUser(t *testing.T) {
	t.Parallel()
	x, acl := redistest.NewTLS(t), suiteUser(t, newer(t, redistest.Start(t))...)
	each(t, func(t *testing.T, s stack) {
		chosen := func(name string) bool { return s.name != "valkey-go" || connecting.MatchString(name) }
		conformance.RunSomeOn(t, []redistest.Option{redistest.WithTLS(x), redistest.WithACL(acl)},
			func(t *testing.T, srv *redistest.Server) backend.Backend {
				t.Cleanup(func() { deniedNothing(t, srv) })
				at := server(srv.TLSAddr()).as(user, password)
				at.TLS = x.Config()
				return s.open(t, at)
			}, chosen)
	})
}

// A user whose row was made for a name with braces of its own may use each feature on it.
func TestTheRowsForNamesWithBracesAreEnough(t *testing.T) {
	t.Parallel()
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
			if row == "quorum" || row == "replicas" {
				continue // nothing in these rows has braces
			}
			n++
			as, rules := fmt.Sprint("braces", n), []string{}
			for _, rule := range least(t, append(tour.besides, row)...) {
				rules = append(rules, own(rule))
			}
			v := visit(t, s, srv, as, rules)
			v.name, v.enough = fmt.Sprintf("orders:{%d}", n), true
			v.listening = func() bool { return strings.Contains(fmt.Sprint(srv.Must("PUBSUB", "CHANNELS")), v.name) }
			harness.OKf(t, v.tour(tour.go_), "%s", row)
			v.leave()
		}
	})
}

// A Quorum whose clients have a WithRejoinScope needs the scope's key instead of the shared one.
func TestAQuorumWithAScopeNeedsTheKeyOfTheScope(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s stack) {
		srv := redistest.Start(t)
		rules := least(t, "client", "locks", "quorum")
		at := slices.Index(rules, "~mortise:1:since")
		harness.FatalIf(t, at < 0, "no rule for the shared key: %q", rules)
		v := visit(t, s, srv, "shared", rules)
		v.name = "orders:shared"
		defer v.leave()
		err := v.tour(tourQuorumScope)
		harness.ErrorIf(t, err == nil || !permission(err), "the scope's key without its permission: %v", err)
		rules[at] += ":orders"
		v = visit(t, s, srv, "scoped", rules)
		v.name = "orders:scoped"
		defer v.leave()
		harness.OKf(t, v.tour(tourQuorumScope), "the scope's key with its permission")
	})
}

// tours go through what a feature is about, each with two clients of the user and
// names that begin with orders:. A tour ends at its first error.
var tours = map[string]struct {
	besides []string // other features that it needs
	go_     func(v *visitor)
}{
	"client":        {[]string{"locks"}, tourLocks},
	"locks":         {[]string{"client"}, tourEveryLock},
	"list":          {[]string{"client"}, tourList},
	"replicas":      {[]string{"client", "locks"}, tourReplicas},
	"delegations":   {[]string{"client", "locks"}, tourEveryNested},
	"proclamations": {[]string{"client", "locks"}, tourProclaim},
	"quorum":        {[]string{"client", "locks"}, tourQuorum},
	"fair":          {[]string{"client"}, tourFair},
	"rw":            {[]string{"client"}, tourRW},
	"rwforce":       {[]string{"client", "locks", "rw"}, tourRWForce},
	"counting":      {[]string{"client"}, tourCountingSemaphore},
	"semaphores":    {[]string{"client"}, tourSemaphore},
	"latches":       {[]string{"client"}, tourCountDownLatch},
	"ticks":         {[]string{"client"}, tourTicks},
}

// visitor takes a tour.
type visitor struct {
	t       *testing.T
	ctx     context.Context
	srv     *redistest.Server
	cluster []*redistest.Server // its masters; nil for a server
	open    func(opts ...mortise.ClientOption) *mortise.Client
	a, b    *mortise.Client
	as      string // the user, as the server knows it
	name    string
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

// must sends a command about a key, on a cluster to the node that has the key.
func (v *visitor) must(args ...string) any {
	v.t.Helper()
	for _, srv := range v.cluster {
		if reply, err := srv.Do(args...); err == nil || !strings.HasPrefix(err.Error(), "MOVED") {
			harness.OKf(v.t, err, "%q", args)
			return reply
		}
	}
	return v.srv.Must(args...)
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
	for _, f := range scripts.Features {
		_, ok := tours[f.Name]
		ok = ok || len(f.Must) == 0 || f.Name == "cluster" || f.Name == "sentinel" // the last two have tests of their own
		harness.ErrorIf(t, !ok, "nothing tries the row %q", f.Name)
	}
	each(t, func(t *testing.T, s stack) {
		for row, tour := range tours {
			harness.Beside(t, row, func(t *testing.T) {
				srv := redistest.Start(t)
				others, rules := least(t, tour.besides...), least(t, row)
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
				harness.OKf(t, try(true, slices.Concat(others, rules)), "the row is not enough")
				for i, rule := range rules {
					if slices.Contains(others, rule) {
						continue
					}
					srv.Must("ACL", "LOG", "RESET")
					err := try(false, slices.Concat(others, rules[:i], rules[i+1:]))
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
					if err != nil {
						harness.ErrorIf(t, !permission(err) || !strings.Contains(err.Error(), lacking(rule)),
							"without %s the error does not say what to do: %v", rule, err)
					}
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

// permission tells whether an error says that the user lacks a permission, and where to read of it.
func permission(err error) bool {
	const said, page = "the Redis user lacks ", "docs/reference/deployments.md#permissions"
	return strings.Contains(err.Error(), said) && strings.Contains(err.Error(), page)
}

// lacking is what an error says that a user without a rule lacks.
func lacking(rule string) string {
	switch rule[0] {
	case '~':
		return "the Redis user lacks a key"
	case '&':
		return "the Redis user lacks a channel"
	}
	return rule
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
	// For Inspect of a lock that another process has entered; for waiters for the plain lock of a fair one's name.
	"~mortise:1:nest:{orders:*": true, "~mortise:1:next:{orders:*": true,
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
	all := had(mortise.Parts{}.And(v.a, v.name, v.name+"/2").Lock(v.ctx))(v)
	v.try(all.Unlock(v.ctx))
	v.lock(v.a, v.b)
	// The waiter does not listen any more. That it may not is told to waiters only: here there is none.
	eventually(v.t, "they do not listen any more", func() bool {
		return !v.listening() || !v.enough && refused(v.srv, v.as, "+unsubscribe")
	})
}

// kinds are the lockers of a kind of both clients.
func (v *visitor) kinds(k ...mortise.Option) (a, b mortise.Locker) {
	return v.a.With(k...), v.b.With(k...)
}

// tourEveryLock ends with a token whose counter is there, after one whose counter was not.
func tourEveryLock(v *visitor) {
	tourLocks(v)
	for range 2 {
		v.lock(v.kinds(mortise.Fenced()))
	}
	tourInspect(v)
	had(v.b.ForceUnlock(v.ctx, v.name, ""))(v)
	tourForce(v)
}

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

// tourList lists, and looks at, what other programs hold: its user may hold nothing.
func tourList(v *visitor) {
	nested, permits := v.name+"/nested", v.name+"/permits"
	for _, args := range [][]string{
		{"HSET", v.name, "a:1", "1"},
		{"HSET", nested, "a:1", "1", "b:1", "1"},
		{"HSET", "mortise:1:nest:{" + nested + "}", "b:1", "1:9999999999999"},
		{"HSET", v.name + "/rw", "mode", "write", "a:1:write", "1"},
		{"SET", permits, "1"},
		{"ZADD", "{" + permits + "}:timeout", "9999999999999", "0123456789abcdefa"},
	} {
		v.must(args...)
	}
	found := map[string]string{}
	for info, err := range v.a.Locks(v.ctx, v.name) {
		v.try(err)
		found[info.Name] = info.Kind
	}
	for name, kind := range map[string]string{
		v.name: "lock", nested: "lock", v.name + "/rw": "read-write", permits: "semaphore",
	} {
		unseen := name == permits && found[name] == "" // the user may not see the permits in use
		if found[name] != kind && v.enough && !unseen {
			v.try(fmt.Errorf("%s is listed as %q, want %q: %v", name, found[name], kind, found))
		}
		if !unseen {
			had(v.b.Inspect(v.ctx, name))(v)
		}
	}
}

func tourForce(v *visitor) {
	had(v.a.Lock(v.ctx, v.name))(v)
	had(v.b.ForceUnlock(v.ctx, v.name, ""))(v)
}

func tourEveryNested(v *visitor) {
	v.nested(v.a)
	fenced, _ := v.kinds(mortise.Fenced())
	v.nested(fenced)
}

func (v *visitor) nested(caller mortise.Locker) {
	outer := had(caller.Lock(v.ctx, v.name))(v)
	ctx := had(delegation.NewContext(v.ctx, v.b, delegation.FromContext(outer.Context())...))(v)
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
			return v.must("EXISTS", "redisson_lock_queue:{"+v.name+"}") == int64(0)
		})
	}
	v.try(lease.Unlock(v.ctx))
	lease = had(a.Lock(v.ctx, v.name))(v)
	v.try(mortise.Do(lease.Context(), a, v.name, func(context.Context) error { return nil }))
	had(v.b.Inspect(v.ctx, v.name))(v)
	had(v.b.ForceUnlock(v.ctx, v.name, ""))(v)
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
}

func tourRWForce(v *visitor) {
	sides := v.a.RW()
	for _, side := range []mortise.Locker{sides.Read, sides.Write} {
		for _, anyOwner := range []bool{true, false} {
			had(side.Lock(v.ctx, v.name))(v)
			owner := had(v.b.Inspect(v.ctx, v.name))(v).Owner
			if anyOwner {
				owner = ""
			}
			if !had(v.b.ForceUnlock(v.ctx, v.name, owner))(v) {
				v.try(errors.New("ForceUnlock found no lock"))
			}
		}
	}
}

func tourCountingSemaphore(v *visitor) {
	a, b := semaphore.NewCounting(v.a, v.name), semaphore.NewCounting(v.b, v.name)
	had(a.TrySetPermits(v.ctx, 1))(v)
	v.try(a.Acquire(v.ctx, 1))
	v.handOver(func(ctx context.Context) error { return b.Acquire(ctx, 1) }, func() error { return a.Release(v.ctx, 1) })
	v.try(a.AddPermits(v.ctx, 2))
	had(a.Drain(v.ctx))(v)
	had(a.Available(v.ctx))(v)
	had(a.Delete(v.ctx))(v)
}

func tourSemaphore(v *visitor) {
	a, b := semaphore.New(v.a, v.name, 0), semaphore.New(v.b, v.name, 0)
	had(a.TrySetPermits(v.ctx, 1))(v)
	v.must("PEXPIRE", v.name, "3600000") // as Redisson may
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
	had(semaphore.New(v.a, v.name, 4).TryAcquire(v.ctx, 2))(v)
	had(a.Inspect(v.ctx))(v)
	v.must("ZADD", "{"+v.name+"}:timeout", "1", "whose holder died")
	had(a.Available(v.ctx))(v)
	had(a.Delete(v.ctx))(v)
}

func tourCountDownLatch(v *visitor) {
	a, b := latch.New(v.a, v.name), latch.New(v.b, v.name)
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
	scope := quorum.WithRejoinScope("orders")
	tourOf(v, v.open(scope), v.open(scope), v.open(scope))
}

func tourOf(v *visitor, clients ...*mortise.Client) {
	quorum := had(quorum.New(clients...))(v)
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
		for p, err := range leader.Observe(ctx, v.b, v.name) {
			if err != nil || p.Identity == "here" {
				return err
			}
		}
		return context.Cause(ctx)
	}, func() error { return leader.Proclaim(v.ctx, lease, "here") })
	v.try(leader.Proclaim(v.ctx, lease, ""))
	v.try(lease.Unlock(v.ctx))
}

func tourTicks(v *visitor) {
	for n := range 2 { // the first tick that is granted is the second of a name
		r := once.TickRequest{ID: fmt.Sprint(n), Interval: 100 * time.Millisecond}
		tick := had(once.TryTick(v.ctx, v.a, v.name, r))(v)
		time.Sleep(tick.Next) // that time is the subject
	}
	had(once.TryTick(v.ctx, v.b, v.name, once.TickRequest{ID: "b", Interval: time.Hour}))(v)
}
