package scripts_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/scripts"
)

// hostile is what the keys of a script are filled with. Each fill is a script that fills KEYS[1]; ARGV has the type of
// the key, and what its entries are: the places of a queue, the deadlines of owners, or neither.
var hostile = []struct{ name, fill string }{
	{"990 entries, whose times are over", entries(990, "dead:", "")}, // more are damage to some scripts
	{"990 entries, whose times have not come", entries(990, "dead:", "9000000000000 + ")},
	{"9,990 entries, whose times are over", entries(9990, "dead:", "")}, // and to the others
	{"9,990 entries, whose times have not come", entries(9990, "dead:", "9000000000000 + ")},
	{"9,990 entries of 10 KB", `local long = string.rep('9', 10000)
		for n = 1, ARGV[1] == 'string' and 1 or 9990 do
			if ARGV[1] == 'hash' then redis.call('hset', KEYS[1], 'dead:' .. n, long)
			elseif ARGV[1] == 'zset' then redis.call('zadd', KEYS[1], n, long .. n)
			elseif ARGV[1] == 'list' then redis.call('rpush', KEYS[1], long .. n)
			else redis.call('set', KEYS[1], long) end
		end`},
	{"300,000 entries", entries(300000, "dead:", "")},
	{"300,000 entries of Redisson", entries(300000, "0b1e0c9a-1111-4222-8333-444455556666:", "9000000000000 + ")},
	{"a field of 100 KB that is held 10,000 times", one("string.rep('x', 100000)", "10000")},
	{"a value of 1 MB", one("'one'", "string.rep('9', 1000000)")},
	{"an entry of 1 MB", one("string.rep('x', 1000000)", "1")},
}

// entries fills a key with n entries, each of a client of its own.
func entries(n int, client, score string) string {
	return fmt.Sprintf(`for first = 1, %d, 1000 do
			local all = {}
			for n = first, math.min(first + 999, %d) do
				local entry = ARGV[2] == 'place' and 'p%s' .. n or '%s' .. n
				if ARGV[1] == 'hash' then
					all[#all + 1], all[#all + 2] = entry, ARGV[2] == 'nest' and n .. ':' .. string.format('%%.0f', %sn) or '1'
				elseif ARGV[1] == 'zset' then
					all[#all + 1], all[#all + 2] = string.format('%%.0f', %sn), entry
				else
					all[#all + 1] = entry
				end
			end
			redis.call(ARGV[1] == 'hash' and 'hset' or ARGV[1] == 'zset' and 'zadd' or 'rpush', KEYS[1], unpack(all))
		end`, n, n, client, client, score, score)
}

// one fills a key with an entry, of a hash with a value.
func one(entry, value string) string {
	return fmt.Sprintf(`local entry, value = %s, %s -- of a hash; of a string only the latter
		if ARGV[1] == 'hash' then redis.call('hset', KEYS[1], entry, value)
		elseif ARGV[1] == 'zset' then redis.call('zadd', KEYS[1], 1, entry)
		elseif ARGV[1] == 'list' then redis.call('rpush', KEYS[1], entry)
		else redis.call('set', KEYS[1], value) end`, entry, value)
}

// counted is a script that counts its commands, and the bytes of their arguments and replies, and of the script's own
// reply. It replies with both numbers, and how the script ended.
func counted(source string) string {
	return `local server, calls, bytes = redis, 0, 0
		local function size(v)
			if type(v) ~= 'table' then return type(v) == 'string' and #v or 8 end
			local sum = 0
			for _, x in pairs(v) do sum = sum + size(x) end
			return sum
		end
		local function counted(send)
			return function(...)
				calls, bytes = calls + 1, bytes + size({...})
				local reply = send(...)
				bytes = bytes + size(reply)
				return reply
			end
		end
		local redis = setmetatable({call = counted(server.call), pcall = counted(server.pcall)}, {__index = server})
		local done, reply = pcall(function() ` + source + ` end)
		if not done then return {calls, bytes, 'an error'} end
		return {calls, bytes + size(reply), type(reply) == 'table' and reply.err and 'an error' or 'done'}`
}

// more are states that those of a full server lack. TOLD adds entries whose clients were told to ask.
var more = []struct{ script, before, values, want string }{
	{"acquire", "HSET mortise:1:next:{n}2:round window 0 lapsed 2", "", ""},
	{"enrol", "HSET mortise:1:next:{n}2:round window 0 lapsed 2", "", ""},
	{"leave_queue", "HSET n mortise:reserved:ptag:1 -; " + queued, "", ""},
	{"inspect", nested, "", ""},
	{"describe", nested + placed + queued, "entries=100", ""},
	{"describe", reads + wakes, "entries=100", ""},
	{"describe", permits + wakes, "entries=100", ""},
	{"force_release", nested + queued, "", ""},
	{"fair_acquire", placed, "counts=0", ""},
	{"fair_release", mine + placed + queued, "keep=0 counts=0", ""},
	{"fair_leave", mine + placed + queued, "", ""},
	{"read_renew", "HSET n mode read me 1 other 1; SET {n}:me:rwlock_timeout:1 1 PX 50000", "", ""},
	{"write_renew", "HSET n mode write me 1 other 1", "", ""},
	{"delegate_renew", "HSET n me 1 callee 1; HSET mortise:1:nest:{n} me 0:9000000000000", "", ""},
	{"read_acquire", reads + wakes + "TOLD mortise:1:wake:{n}", "", ""},
	{"read_release", "HSET n mode read me 1; SET {n}:me:rwlock_timeout:1 1; " + wakes + "TOLD mortise:1:wake:{n}", "", ""},
	{"write_acquire", wakes + "TOLD mortise:1:wake:{n}", "", ""},
	{"write_release", writes + wakes + "TOLD mortise:1:wake:{n}", "keep=0", ""},
	{"semaphore_take", "SET n 500; " + wakes + "TOLD mortise:1:wake:{n}", "", ""},
	{"semaphore_add", "SET n 500; " + wakes + "TOLD mortise:1:wake:{n}", "", ""},
	{"permits_acquire", "SET n 500; " + wakes + "TOLD mortise:1:wake:{n}", "", ""},
	{"permits_release", permits + wakes + "TOLD mortise:1:wake:{n}", "", ""},
}

// behind returns states with entries of clients that do not listen. DEAD adds them, with owners that ask for a token,
// of the letter that follows (see teller.lua). DENIED takes the permissions for sharded pub/sub from the user, so that
// clients with the letter s are neither counted nor told.
func behind(dead string) []struct{ script, before, values, want string } {
	return []struct{ script, before, values, want string }{
		{"acquire", dead, "", ""},
		{"enrol", dead, "", ""},
		{"serve", mine + dead, "yield=1", ""},
		{"release", mine + dead, "keep=0", ""},
		{"leave_queue", mine + dead, "", ""},
		{"fair_release", mine + placed + dead, "keep=0 counts=0", ""},
	}
}

// world is a server with keys that are hostile.
type world struct {
	t    *testing.T
	srv  *redistest.Server
	fill string
	is   map[string]string // what a key was filled with
}

// beside are the keys that scripts reach without a KEYS of theirs, and that have a type.
var beside = map[string]string{
	"mortise:1:next:{n}2": "zset", "mortise:1:next:{n}2:round": "hash", "mortise:1:next:{n}2:window": "string",
	"mortise:1:next:{n}2:extra": "string", "mortise:1:next:{n}2:asks": "hash",
	"mortise:1:wake:{n}": "zset", "mortise:1:wake:{n}:wants": "hash",
	"mortise:1:wake:{n}:round": "hash", "mortise:1:nest:{n}": "hash", "redisson_lock_queue:{n}": "list",
	"redisson_lock_timeout:{n}": "zset", "mortise:1:writer:{n}": "string",
}

// keysOf are the keys that a script reads, with their types.
func keysOf(t *testing.T, script string) map[string]string {
	t.Helper()
	h, keys := headerOf(t, script), map[string]string{}
	for i, form := range h.forms {
		form, _, _ = strings.Cut(form, "|")
		if kind := h.kinds[i]; kind != "channel" && h.keys[i] != "prefix" {
			keys[strings.NewReplacer("NAME", "n", "READER", "me", "ID", "id").Replace(form)] = kind
		}
	}
	needs := scripts.Commands[script]
	for key, kind := range beside {
		for _, pattern := range slices.Concat(needs.Keys, needs.MayKeys) {
			if pattern != "NAME" && strings.HasPrefix(key, strings.ReplaceAll(pattern, "NAME", "n")) {
				keys[key] = kind
			}
		}
	}
	return keys
}

// words are all that the commands before a script add to a key, and what the script may add.
var words = func() (all []string) {
	for _, x := range onFull {
		for _, c := range statements(x.before) {
			all = append(all, c[2:]...)
		}
	}
	all = append(all, "me", "next", "callee", "mortise:reserved:ptag:1", "owner", "text", "token", "number", "tag:1")
	slices.Sort(all)
	return slices.Compact(all)
}()

// put makes a key hostile, or removes it.
func (w *world) put(key, kind string, is bool) {
	w.t.Helper()
	form := ""
	switch {
	case strings.Contains(key, "nest"):
		form = "nest"
	case strings.Contains(key, "next") || strings.Contains(key, "wake"):
		form = "place"
	}
	source := ""
	if is {
		source = kind + form
	}
	if source != "" && w.is[key] == source && w.whole(key, kind) {
		return
	}
	aside := func(source string) string { return "aside:" + source + ":" + key }
	if was := w.is[key]; was != "" && call(w.t, w.srv, "EXISTS", key) == int64(1) {
		call(w.t, w.srv, "RENAME", key, aside(was))
	}
	call(w.t, w.srv, "UNLINK", key)
	w.is[key] = source
	if source == "" {
		return
	}
	if call(w.t, w.srv, "EXISTS", aside(source)) == int64(1) {
		call(w.t, w.srv, "RENAME", aside(source), key)
		if w.whole(key, kind) {
			return
		}
		call(w.t, w.srv, "UNLINK", key)
	}
	if call(w.t, w.srv, "EXISTS", "made:"+source) == int64(0) {
		call(w.t, w.srv, "EVAL", w.fill, "1", "made:"+source, kind, form)
	}
	call(w.t, w.srv, "COPY", "made:"+source, key)
}

// whole reports whether a key is as it was filled, after it has removed what was added.
func (w *world) whole(key, kind string) bool {
	w.t.Helper()
	return call(w.t, w.srv, append([]string{"EVAL", `local key, kind = KEYS[1], ARGV[1]
		if redis.call('type', key).ok ~= kind or kind == 'string' then return 0 end
		local size = kind == 'hash' and 'hlen' or kind == 'zset' and 'zcard' or 'llen'
		redis.call('persist', key)
		for i = 3, #ARGV do
			if kind == 'list' then
				if i < 5 then redis.call('lrem', key, 0, i == 3 and 'me' or 'w:2') end
			else
				redis.call(kind == 'hash' and 'hdel' or 'zrem', key, ARGV[i])
			end
		end
		return redis.call(size, key) >= redis.call(size, ARGV[2]) * 0.9 and 1 or 0`,
		"1", key, kind, "made:" + w.is[key]}, words...)...) == int64(1)
}

// scene is a script, the state before it, and the keys that are hostile.
type scene struct {
	script, before, values string
	key                    string // "": all that the script reads
}

// set puts the keys of a scene into the world, and the state before on top of them.
func (w *world) set(s scene) {
	w.t.Helper()
	for key, kind := range keysOf(w.t, s.script) {
		w.put(key, kind, s.key == "" || s.key == key)
	}
	for _, c := range statements(s.before) {
		switch {
		case c[0] == "TOLD":
			call(w.t, w.srv, "EVAL", `local now = redis.call('time')
				for i = 1, 200 do
					redis.pcall('zadd', KEYS[1], string.format('%.0f', -now[1] * 1000 - 2000 + i), 'ptold' .. i .. ':1')
				end`, "1", c[1])
		case c[0] == "DEAD":
			call(w.t, w.srv, "EVAL", `for i = 1, 300 do
					local entry = ARGV[1] .. 'dead' .. i .. ':+:host/1/x:' .. i
					redis.pcall('zadd', KEYS[1], 0, entry)
					redis.pcall('hset', KEYS[1] .. ':asks', entry, '60000:1')
				end`, "1", c[1], c[2])
		case c[0] == "DENIED":
			call(w.t, w.srv, "ACL", "SETUSER", "default", "-spublish", "-pubsub|shardnumsub")
		case c[0] != "SET" || w.is[c[1]] == "": // a hostile text stays
			_, _ = w.srv.Do(c...)
		}
	}
	call(w.t, w.srv, "SLOWLOG", "RESET")
}

// slowest is the longest time that SLOWLOG has.
func (w *world) slowest() (d time.Duration) {
	w.t.Helper()
	for _, entry := range call(w.t, w.srv, "SLOWLOG", "GET", "100").([]any) {
		d = max(d, time.Duration(entry.([]any)[2].(int64))*time.Microsecond)
	}
	return d
}

// longest is the time that no script takes on a machine that does nothing else.
const longest = 100 * time.Millisecond

// Each script does a bounded number of commands, of a bounded number of bytes, and takes a bounded time, also where
// another program has written into its keys: a longer script stops the server for all of its users. Each script is in
// the states that TestEveryScriptOnAFullServer has, with each of its keys and with all of them hostile.
func TestEveryScriptIsBounded(t *testing.T) {
	check.Long(t)
	for _, how := range hostile {
		t.Run(how.name, func(t *testing.T) {
			srv := redistest.Start(t, redistest.WithConfig(fmt.Sprint("slowlog-log-slower-than ", longest.Microseconds())))
			w := &world{t, srv, how.fill, map[string]string{}}
			const dead = "DEAD mortise:1:next:{n}2 "
			for _, x := range slices.Concat(onFull, more, behind(dead+"p"), behind("DENIED -; "+dead+"s")) {
				for _, key := range append(slices.Sorted(maps.Keys(keysOf(t, x.script))), "") {
					w.runs(scene{x.script, x.before, x.values, key})
				}
			}
		})
	}
}

// processor is the processor time that the server's main thread has used.
func (w *world) processor() (d time.Duration) {
	w.t.Helper()
	info := call(w.t, w.srv, "INFO", "cpu").(string)
	for _, kind := range []string{"user", "sys"} {
		_, rest, _ := strings.Cut(info, "used_cpu_"+kind+"_main_thread:")
		seconds, _, _ := strings.Cut(rest, "\r")
		d += time.Duration(check.Value(strconv.ParseFloat(seconds, 64)).In(w.t) * float64(time.Second))
	}
	return d
}

// runs runs a scene, and checks that it is bounded. One that took long is repeated without being counted, since the
// machine may be busy with other things: the processor time of the quickest run counts.
func (w *world) runs(s scene) {
	w.t.Helper()
	w.set(s)
	defer call(w.t, w.srv, "ACL", "SETUSER", "default", "+@all")
	eval, bound := evalOf(w.t, s.script, s.values), scripts.Bounds[s.script]
	source := eval[1]
	eval[1] = counted(source)
	got := call(w.t, w.srv, eval...).([]any)
	check.ErrorIf(w.t, got[0].(int64) > int64(bound.Calls) || got[1].(int64) > int64(bound.Bytes),
		"%+v: %d commands and %d bytes, %v; the bound is %d and %d", s, got[0], got[1], got[2], bound.Calls, bound.Bytes)
	took := w.slowest()
	for try := 0; took > longest && try < 3; try++ {
		w.set(s)
		eval[1] = source
		before := w.processor()
		_, _ = w.srv.Do(eval...)
		took = min(w.slowest(), w.processor()-before)
	}
	check.ErrorIf(w.t, took > longest, "%+v: it takes %v, want %v at most", s, took, longest)
}
