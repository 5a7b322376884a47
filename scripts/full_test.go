package scripts_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

const (
	mine   = "HSET n me 1; PEXPIRE n 50000; "
	two    = "HSET n me 2; PEXPIRE n 50000; "
	nested = "HSET n me 1 callee 1; PEXPIRE n 50000; HSET mortise:1:nest:{n} me 0:9000000000000 callee 1:9000000000001; "
	reads  = "HSET n mode read me 1 other 1; PEXPIRE n 50000; SET {n}:me:rwlock_timeout:1 1 PX 50000; " +
		"SET {n}:other:rwlock_timeout:1 1 PX 50000; "
	writes  = "HSET n mode write me 2; PEXPIRE n 50000; "
	permits = "SET n 1; ZADD {n}:timeout 9000000000000 " + id + "; "
	ended   = "SET n 0; ZADD {n}:timeout 1 fedcba9876543210fedcba9876543210; "
	placed  = "RPUSH redisson_lock_queue:{n} me w:2; " +
		"ZADD redisson_lock_timeout:{n} 9000000000000.5 me 9000000000000.5 w:2; "
	queued = "ZADD mortise:1:next:{n}2 1 ptag:1 2 pother:2; "
	wakes  = "ZADD mortise:1:wake:{n} 1 ptag:1 2 pother:2; HSET mortise:1:wake:{n}:wants ptag:1 w; "
)

// onFull says what a script does on a full server, after the commands before: its reply, or refused.
var onFull = []struct{ script, before, values, want string }{
	// What a client has is kept, renewed, given back and counted down.
	{"renew", mine, "", "[1]"},
	{"renew", mine, "lease=1000 exact=1", "[1]"},
	{"write_renew", writes, "", "[1]"},
	{"read_renew", reads, "", "[1]"},
	{"delegate_renew", nested, "lease=9000000000000", "[1]"},
	{"permits_renew", permits, "exact=1", "[1]"},
	{"permits_renew", permits, "lease=9000000000000", "[1]"},
	{"release", mine, "keep=0", "1"},
	{"release", mine + queued, "keep=0", "1"},
	{"release", two, "keep=1", "1"},
	{"release_all", mine, "keep=0", "[1]"},
	{"release_all", two, "keep=1", "[1]"},
	{"fair_release", mine + placed, "keep=0", "1"},
	{"fair_release", two, "keep=1", "1"},
	{"fair_leave", placed, "", "1"},
	{"fair_leave", mine, "", "2"},
	{"read_release", reads, "", "1"},
	{"write_release", writes, "keep=0", "1"},
	{"write_release", writes + "HSET n other 1; SET {n}:other:rwlock_timeout:1 1 PX 50000;", "keep=0", "1"},
	{"write_release", writes, "keep=1", "1"},
	{"delegate_release", nested, "keep=0", "1"},
	{"delegate_release", nested, "keep=1", "1"},
	{"permits_release", permits, "", "1"},
	{"permits_count", ended, "", "1"},
	{"semaphore_add", "SET n 1;", "", "2"},
	{"semaphore_add", "SET n 1; SET mortise:1:once:{n}:id 1", "", "1"},
	{"semaphore_delete", "SET mortise:1:once:{n}:id 1", "", "1"},
	{"latch_delete", "SET mortise:1:once:{n}:id 1", "", "1"},
	{"semaphore_cancel", "SET n 1; SET mortise:1:once:{n}:id 1", "", "1"},
	{"semaphore_cancel", "SET n 1", "", "0"},
	{"semaphore_delete", "SET n 1", "", "1"},
	{"latch_count_down", "SET n 2", "", "1"},
	{"latch_count_down", "SET n 1", "", "0"},
	{"latch_delete", "SET n 1", "", "1"},
	{"serve", mine, "", "[3 0]"},
	{"serve", mine, "fenced=1", "[3 "},
	{"serve", mine + queued, "yield=1", "[2 0]"},
	{"leave_queue", mine + queued, "", "1"},
	{"semaphore_leave", "SET n 1; " + wakes, "", "1"},
	{"rw_leave", reads + wakes, "", "1"},
	{"rw_withdraw", reads + "SET mortise:1:writer:{n} c", "", "1"},
	{"force_release", mine, "", "1"},
	{"rw_force_release", reads, "", "1"},
	{"count", "SET n 7", "", "7"},
	{"inspect", mine, "", "["},
	{"describe", mine + queued, "", "[lock "},
	{"describe", reads + wakes, "", "[read "},
	{"describe", permits, "", "[semaphore "},
	{"describe", "SET n 7", "", "[count -1 0 0 0 2  7]"},
	{"rw_inspect", reads, "", "["},
	{"permits_inspect", permits, "", "[1 1 "},
	{"proclaimed", mine + "HSET mortise:1:proclaim:{n} owner me text x token 1", "", "[me x 1 "},

	// What a client has not is not granted, and the data stay as they were.
	{"acquire", "", "", refused},
	{"acquire_all", "", "", refused},
	{"acquire_fenced", "", "", refused},
	{"acquire_fenced", "SET redisson_lock_token:{n} 7", "", refused},
	{"aged_acquire", "", "", refused},
	{"enrol", "", "", refused},
	{"reenter", mine, "holds=2", refused},
	{"reenter", mine, "holds=2 fenced=1", refused},
	{"fair_acquire", "", "", refused},
	{"read_acquire", "", "", refused},
	{"read_acquire", "HSET n mode read other 1; PEXPIRE n 50000", "", refused},
	{"read_enter", "HSET n mode write under 1; PEXPIRE n 50000", "under=under", refused},
	{"write_acquire", "", "", refused},
	{"permits_acquire", "SET n 1", "", refused},
	{"permits_acquire", ended, "", refused},
	{"permits_set", "SET n 1", "limit=2", refused},
	{"semaphore_take", "SET n 1", "", refused},
	{"semaphore_drain", "SET n 1", "", refused},
	{"semaphore_set", "", "", refused},
	{"latch_set", "", "", refused},
	{"delegate_enter", mine, "owner=callee", refused},
	{"proclaim", mine, "", refused},
	{"claim_tick", "", "", refused},
	{"joint", "", "", "[-2]"}, // ask with acquire

	// A waiter goes on waiting; a fair one keeps the place that it has.
	{"enrol", "HSET n other 1; PEXPIRE n 50000", "", "[2 "},
	{"fair_acquire", "HSET n other 1; PEXPIRE n 50000", "", "[0 50000 1000 0]"},
	{"fair_acquire", "HSET n other 1; PEXPIRE n 50000; " + placed, "", "[0 50000 50000 0]"},
	{"read_acquire", "HSET n mode write other 1; PEXPIRE n 50000", "", "[50000 0 "},
	{"write_acquire", "HSET n mode write other 1; PEXPIRE n 50000", "", "[50000 0 0 "},
	{"permits_acquire", "SET n 0", "", "[-1 0 0 "},
	{"semaphore_take", "SET n 0", "", "[0 0 0 0]"},
}

const refused = "refused"

// On a full server no renewal, no release and no count-down is lost, and each acquisition is refused before it changes
// anything. The table has every script.
func TestEveryScriptOnAFullServer(t *testing.T) {
	srv := redistest.Start(t)
	for _, x := range onFull {
		call(t, srv, "CONFIG", "SET", "maxmemory", "0")
		call(t, srv, "FLUSHALL")
		call(t, srv, "SET", "ballast", "x")
		for _, c := range statements(x.before) {
			call(t, srv, c...)
		}
		before := data(t, srv)
		call(t, srv, "CONFIG", "SET", "maxmemory", "1", "maxmemory-policy", "noeviction")
		reply, err := srv.Do(evalOf(t, x.script, x.values)...)
		switch got := near(fmt.Sprint(reply)); {
		case x.want == refused:
			check.ErrorIf(t, err == nil || !strings.Contains(err.Error(), "OOM"), "%s %s: %v, %v; want OOM",
				x.script, x.values, got, err)
			after := data(t, srv)
			check.ErrorIf(t, after != before, "%s %s: was refused and left\n%s, before\n%s", x.script, x.values, after, before)
		default:
			check.ErrorIf(t, err != nil || !strings.HasPrefix(got, x.want), "%s %s (%s): %s, %v; want %s", x.script, x.values,
				x.before, got, err, x.want)
		}
	}
	everyScript(t, func(script string) bool {
		return slices.ContainsFunc(onFull, func(x struct{ script, before, values, want string }) bool {
			return x.script == script
		})
	})
}

// near rounds times of up to 5 s below 50 s: a busy machine takes its time.
func near(reply string) string { return below50s.ReplaceAllString(reply, "50000") }

var below50s = regexp.MustCompile(`\b4[5-9]\d{3}\b`)

// data is what all keys hold, and whether they have an end.
func data(t *testing.T, srv *redistest.Server) string {
	t.Helper()
	var all []string
	for _, key := range call(t, srv, "KEYS", "*").([]any) {
		all = append(all, fmt.Sprintf("%s %q %v", key, call(t, srv, "DUMP", fmt.Sprint(key)),
			call(t, srv, "PTTL", fmt.Sprint(key)).(int64) >= 0))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}
