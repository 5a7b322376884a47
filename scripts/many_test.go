package scripts_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/scripts"
)

// state is what a key may hold before.
type state struct {
	name    string
	prepare [][]string // commands, their keys left out
	queue   []string   // the entries of the lock's queue
}

func states() []state {
	all := []state{
		{"free", nil, nil},
		{"held by another", [][]string{{"HSET", "other", "1"}, {"PEXPIRE", "50000"}}, nil},
		{"held by another, for ever", [][]string{{"HSET", "other", "1"}}, nil},
		{"held by the owner", [][]string{{"HSET", "me", "1"}, {"PEXPIRE", "50000"}}, nil},
		{"held by the owner, twice", [][]string{{"HSET", "me", "2"}, {"PEXPIRE", "50000"}}, nil},
		{"held by the owner, for ever", [][]string{{"HSET", "me", "1"}}, nil},
		{"held by the owner, and by a reader of Redisson's",
			[][]string{{"HSET", "me", "1", "mode", "read", "uuid:1", "1"}}, nil},
		{"a read-write lock", [][]string{{"HSET", "mode", "write", "uuid:1:write", "1"}}, nil},
		{"a string", [][]string{{"SET", "x"}}, nil},
		{"a list", [][]string{{"RPUSH", "x"}}, nil},
	}
	for _, s := range all[:4] {
		all = append(all, state{s.name + ", with a queue", s.prepare, []string{"ptag:1", "pother:2"}})
	}
	return append(all, state{"reserved", [][]string{{"HSET", "mortise:reserved:ptag:1", "-"}, {"PEXPIRE", "50000"}}, nil})
}

func (s state) set(t *testing.T, srv *redistest.Server, key string) {
	t.Helper()
	for _, c := range s.prepare {
		call(t, srv, append([]string{c[0], key}, c[1:]...)...)
	}
	for i, entry := range s.queue {
		call(t, srv, "ZADD", queueOf(key), strconv.Itoa(i), entry)
	}
}

func call(t *testing.T, srv *redistest.Server, args ...string) any {
	t.Helper()
	reply, err := srv.Do(args...)
	check.FatalIf(t, err != nil, "%q: %v", args, err)
	return reply
}

// record is what a key holds, its time rounded.
func record(t *testing.T, srv *redistest.Server, key string) string {
	t.Helper()
	kind := call(t, srv, "TYPE", key)
	left := call(t, srv, "PTTL", key).(int64)
	if left > 0 {
		left = (left + 9999) / 10000
	}
	queue := call(t, srv, "ZRANGE", queueOf(key), "0", "-1")
	if kind != "hash" {
		return fmt.Sprint(kind, left, queue)
	}
	return fmt.Sprint(kind, left, call(t, srv, "HGETALL", key), queue)
}

// left reports whether the script for several leaves an item to the script for one: its lock has a queue, and is
// to be released, or is free.
func (i item) left(t *testing.T, srv *redistest.Server, key string) bool {
	t.Helper()
	return call(t, srv, "EXISTS", queueOf(key)) == int64(1) &&
		(i.lease == "0" || call(t, srv, "EXISTS", key) == int64(0))
}

// joint asks for a lease for an owner of each key by the script for several, or, where that is 0,
// releases them.
func joint(lease, owner string, keys ...string) []string {
	list := make([]item, len(keys))
	for i, key := range keys {
		list[i] = item{key, owner, lease}
	}
	return jointOf(list...)
}

type item struct{ key, owner, lease string }

// queueOf is the key of a lock's queue, and channelOf its channel.
func queueOf(key string) string   { return "mortise:1:next:{" + key + "}2" }
func channelOf(key string) string { return "redisson_lock__channel:{" + key + "}" }

func jointOf(items ...item) []string {
	args := []string{"EVAL", scripts.JointSource, strconv.Itoa(2 * len(items))}
	for _, i := range items {
		channel := i.key
		if i.lease == "0" {
			channel = channelOf(i.key)
		}
		args = append(args, i.key, channel)
	}
	args = append(args, "publish")
	for _, i := range items {
		args = append(args, i.owner, i.lease)
	}
	return args
}

// alone does for one item, at a key, what the script for several does for it.
func (i item) alone(srv *redistest.Server, key string) (any, error) {
	if i.lease == "0" {
		return srv.Do("EVAL", scripts.ReleaseSource, "2", key, channelOf(key), i.owner, "0", "publish")
	}
	return srv.Do("EVAL", scripts.AcquireSource, "1", key, i.owner, i.lease)
}

// alike reports whether two replies are the same but for the time that has passed.
func alike(got, want int64) bool {
	return got == want || want > 1 && got > 1 && max(want-got, got-want) < 5000
}

// compare sends items in one script, and of each the twin, whose key begins with "one" instead of "many", by a script
// for one.
func compare(t *testing.T, srv *redistest.Server, items []item) {
	t.Helper()
	before := make([]string, len(items))
	for i, x := range items {
		before[i] = record(t, srv, x.key)
	}
	answers := call(t, srv, jointOf(items...)...).([]any)
	for i, x := range items {
		key := "one" + strings.TrimPrefix(x.key, "many")
		leaves := x.left(t, srv, key)
		one, err := x.alone(srv, key)
		got, after := answers[i].(int64), record(t, srv, x.key)
		if leaves || err != nil {
			check.ErrorIf(t, got != -2 || after != before[i], "%+v, %s: answers %d and leaves %s; %v says the script for one",
				x, before[i], got, after, err)
			continue
		}
		want := record(t, srv, key)
		check.ErrorIf(t, !alike(got, one.(int64)) || after != want, "%+v, %s: answers %d and leaves %s, want %d and %s", x,
			before[i], got, after, one, want)
	}
}

// A script for several does for each what the script for one does, or nothing, and says so: whatever
// stands beside it, in whatever order. It does not serve a queue.
func TestManyAreServedAsOneIs(t *testing.T) {
	check.Long(t)
	srv := redistest.Start(t)
	all := states()
	for _, lease := range []string{"30000", "0"} {
		for turn := range all {
			order := slices.Concat(all[turn:], all[:turn])
			for _, some := range [][]state{order, order[:1], order[:2], {order[0], order[0]}} {
				call(t, srv, "FLUSHALL")
				var items []item
				for i, s := range some {
					s.set(t, srv, fmt.Sprint("one", i))
					s.set(t, srv, fmt.Sprint("many", i))
					items = append(items, item{fmt.Sprint("many", i), "me", lease})
				}
				compare(t, srv, items)
			}
		}
	}
}

// Some ask and some release: each gets what it would get alone.
func TestSomeAskAndSomeRelease(t *testing.T) {
	check.Long(t)
	srv := redistest.Start(t)
	all := states()
	for turn := range all {
		call(t, srv, "FLUSHALL")
		var items []item
		for i := range all {
			s := all[(i+turn)%len(all)]
			for k, lease := range []string{"0", "30000"} {
				s.set(t, srv, fmt.Sprint("one", i, k))
				s.set(t, srv, fmt.Sprint("many", i, k))
				items = append(items, item{fmt.Sprint("many", i, k), "me", lease})
			}
		}
		compare(t, srv, items)
	}
}

// Whatever is asked for and released in one script, of few locks and by few, it is as if each were
// asked for alone, one after the other.
func TestJointIsAsOneAfterAnother(t *testing.T) {
	check.Long(t)
	a, b := redistest.Start(t), redistest.Start(t)
	all := states()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		call(t, a, "FLUSHALL")
		call(t, b, "FLUSHALL")
		for k := range 4 {
			s := all[random.IntN(len(all))]
			s.set(t, a, fmt.Sprint("k", k))
			s.set(t, b, fmt.Sprint("k", k))
		}
		var items []item
		for range 1 + random.IntN(8) {
			items = append(items, item{fmt.Sprint("k", random.IntN(4)),
				[]string{"me", "other", "third"}[random.IntN(3)], []string{"0", "30000"}[random.IntN(2)]})
		}
		answers := call(t, a, jointOf(items...)...).([]any)
		for i, x := range items {
			want, got := any(int64(-2)), answers[i].(int64)
			var err error
			if !x.left(t, b, x.key) {
				if want, err = x.alone(b, x.key); err != nil {
					want = int64(-2)
				}
			}
			check.FatalIf(t, !alike(got, want.(int64)), "seed %d, %v: %d of them is answered %d, want %v, %v",
				seed, items, i, got, want, err)
		}
		for k := range 4 {
			one, other := record(t, a, fmt.Sprint("k", k)), record(t, b, fmt.Sprint("k", k))
			check.FatalIf(t, one != other, "seed %d, %v: k%d is %s, want %s", seed, items, k, one, other)
		}
	}
}

// Who asks for the same lock in the same script is not let in with the first.
func TestOneOfManyGetsALock(t *testing.T) {
	srv := redistest.Start(t)
	for range 2 { // free, and held beside a free one
		got := call(t, srv, jointOf(item{"a", "x", "30000"}, item{"b", "x", "30000"},
			item{"a", "y", "30000"})...).([]any)
		check.ErrorIf(t, got[0] != int64(0) || got[1] != int64(0) || got[2].(int64) <= 0,
			"%v, want the second to be refused a", got)
		check.Equal(t, "a is held by %s", fmt.Sprint(call(t, srv, "HGETALL", "a")), "[x 1]")
		call(t, srv, "DEL", "a")
	}
}

// A server whose users may not do all that the scripts do refuses all of it, or some of one lock's:
// that lock is as it was then.
func TestManyWithADeniedCommandAgreeWithTheRecords(t *testing.T) {
	srv := redistest.Start(t)
	for _, denied := range []string{"exists", "hset", "pexpire", "hexists", "pttl", "hdel", "publish"} {
		call(t, srv, "FLUSHALL")
		call(t, srv, "ACL", "SETUSER", "default", "+@all", "&*", "-"+denied)
		restore := func() { call(t, srv, "ACL", "SETUSER", "default", "+@all") }
		acquired, failed := srv.Do(joint("30000", "x", "a", "b")...)
		restore()
		for i, key := range []string{"a", "b"} {
			left := call(t, srv, "PTTL", key).(int64)
			switch {
			case failed == nil && acquired.([]any)[i] == int64(0):
				check.ErrorIf(t, left <= 0, "without %s: granted, and %d ms are left", denied, left)
			case left != -2:
				t.Errorf("without %s: %v, %v, and the lock is there: %d", denied, acquired, failed, left)
			}
			call(t, srv, "DEL", key)
			call(t, srv, "HSET", key, "x", "1")
		}
		call(t, srv, "ACL", "SETUSER", "default", "-"+denied)
		released, failed := srv.Do(joint("0", "x", "a", "b")...)
		restore()
		for i, key := range []string{"a", "b"} {
			kept := failed != nil || released.([]any)[i] == int64(-2)
			if there := call(t, srv, "EXISTS", key) == int64(1); there != kept {
				t.Errorf("without %s: %v, %v, and the lock is there: %v", denied, released, failed, there)
			}
		}
	}
}

// A server that may not write any more grants nothing, not even what its data says is held by who
// asks: they may be old.
func TestManyAreNotGrantedWhereOneIsNot(t *testing.T) {
	for name, block := range map[string][]string{
		"too few replicas":    {"CONFIG", "SET", "min-replicas-to-write", "1"},
		"a replica":           {"REPLICAOF", "127.0.0.1", "1"},
		"no pexpire":          {"ACL", "SETUSER", "default", "-pexpire"},
		"neither it nor hdel": {"ACL", "SETUSER", "default", "-pexpire", "-hdel"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			call(t, srv, "HSET", "a", "me", "1")
			call(t, srv, "PEXPIRE", "a", "20000")
			call(t, srv, "HSET", "half made", "me", "1")
			call(t, srv, block...)
			many := call(t, srv, joint("30000", "me", "a", "b", "half made")...).([]any)
			for i, key := range []string{"a", "b", "half made"} {
				check.ErrorIf(t, many[i] != int64(-2), "joint acquisition of %s: %v", key, many[i])
				one, err := item{key, "me", "30000"}.alone(srv, key)
				check.ErrorIf(t, err == nil, "acquire of %s: %v", key, one)
			}
		})
	}
}

// A server that is full refuses each of many what it refuses one, and keeps no half of a lock.
func TestManyOnAFullServer(t *testing.T) {
	srv := redistest.Start(t)
	call(t, srv, "SET", "ballast", "x")
	call(t, srv, "CONFIG", "SET", "maxmemory", "1")
	got := call(t, srv, joint("30000", "x", "a", "b")...).([]any)
	check.ErrorIf(t, got[0] != int64(-2) || got[1] != int64(-2), "%v, want -2 for each", got)
	check.Equal[any](t, "%v of them are there", call(t, srv, "EXISTS", "a", "b"), int64(0))
}
