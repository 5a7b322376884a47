package scripts_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// A record of ten megabytes is damage: it is not read, no script grants anything because of it, and a lock keeps its
// time to live unless it is removed by force.
func TestARecordOfTooManyBytesIsNoGrant(t *testing.T) {
	const nest = "mortise:1:nest:{n}"
	srv := redistest.Start(t)
	call(t, srv, "EVAL", `for i = 1, 20 do
		redis.call('hset', KEYS[1], 'dead:' .. i, string.rep('9', 500000))
	end`, "1", "made")
	for _, x := range []struct{ script, before, values, damaged, want, left string }{
		{"read_release", reads, "", "n", "1", "ms"},
		{"write_release", writes, "keep=0", "n", "1", "ms"},
		{"read_renew", "HSET n mode read me 1; SET {n}:me:rwlock_timeout:1 1 PX 50000", "", "n", "[1]", "-1"},
		{"write_renew", "HSET n mode write me 1", "", "n", "[1]", "-1"},
		{"read_acquire", "HSET n mode write other 1; PEXPIRE n 50000", "entry=", "n", "[ms ", "ms"},
		{"write_acquire", "HSET n mode read other 1; PEXPIRE n 50000", "entry=", "n", "[ms ", "ms"},
		{"rw_inspect", reads, "", "n", "[ms read]", "ms"},
		{"rw_force_release", reads, "", "n", "1", "-2"},
		{"delegate_enter", mine, "owner=callee", nest, "[0 -1]", "ms"},
		{"delegate_release", nested, "keep=0", nest, "1", "ms"},
		{"delegate_renew", "HSET n me 1 callee 1; HSET " + nest + " me 0:9000000000000", "exact=1", nest, "[1]", "-1"},
		{"inspect", mine, "", "n", "[ms  0]", "ms"},
		{"force_release", mine, "", "n", "1", "-2"},
	} {
		call(t, srv, "UNLINK", "n", nest)
		call(t, srv, "COPY", "made", x.damaged)
		for _, c := range statements(x.before) {
			call(t, srv, c...)
		}
		got := times.ReplaceAllString(fmt.Sprint(call(t, srv, evalOf(t, x.script, x.values)...)), "ms")
		left := times.ReplaceAllString(fmt.Sprint(call(t, srv, "PTTL", "n")), "ms")
		check.ErrorIf(t, !strings.HasPrefix(got, x.want) || left != x.left, "%s %s: %.100s, and %s left; want %s, %s",
			x.script, x.values, got, left, x.want, x.left)
	}
}

// times are those that are left of 50 s.
var times = regexp.MustCompile(`\b([1-4]\d{4}|50000)\b`)
