package scripts_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/scripts"
)

// Readers that leave together do not each read all the others: HGETALL of n readers for each of n would be n squared.
func TestReadersThatLeaveTogetherDoNotReadEachOther(t *testing.T) {
	srv := redistest.Start(t)
	const readers = 1000
	call(t, srv, "EVAL", `redis.call('hset', 'n', 'mode', 'read')
		for i = 1, ARGV[1] do
			redis.call('hset', 'n', 'r' .. i, '1')
			redis.call('set', '{n}:r' .. i .. ':rwlock_timeout:1', '1', 'px', 60000 + i)
		end
		redis.call('pexpire', 'n', 60000 + ARGV[1])`, "0", strconv.Itoa(readers))
	call(t, srv, "CONFIG", "RESETSTAT")
	for i := readers; i > 0; i-- { // each has the longest lease of all that are left
		r := "r" + strconv.Itoa(i)
		call(t, srv, "EVAL", scripts.ReadReleaseSource, "4", "n", "{n}:"+r+":rwlock_timeout:1", "{n}",
			"redisson_rwlock:{n}", r, "publish")
	}
	all, ttls, n := calls(t, srv, "hgetall"), calls(t, srv, "pttl"), inner(t, srv)
	check.ErrorIf(t, all > 64 || ttls > 70*readers/10, "%d readers left with %d HGETALL and %d PTTL", readers, all, ttls)
	check.ErrorIf(t, call(t, srv, "EXISTS", "n") != int64(0), "the lock is still there")
	check.ErrorIf(t, n > 16*readers, "%d readers left with %d commands inside their scripts, want at most 16 a reader",
		readers, n)
}

// inner is how many commands scripts have sent since CONFIG RESETSTAT.
func inner(t *testing.T, srv *redistest.Server) (n int) {
	t.Helper()
	for line := range strings.Lines(call(t, srv, "INFO", "commandstats").(string)) {
		name, rest, is := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !is || name == "eval" || strings.HasPrefix(name, "config|") || name == "info" {
			continue
		}
		count, _, _ := strings.Cut(rest, ",")
		n += check.Value(strconv.Atoi(count)).In(t)
	}
	return n
}

// calls is how often a command ran since CONFIG RESETSTAT.
func calls(t *testing.T, srv *redistest.Server, command string) int {
	t.Helper()
	_, rest, is := strings.Cut(call(t, srv, "INFO", "commandstats").(string), "cmdstat_"+command+":calls=")
	if !is {
		return 0
	}
	n, _, _ := strings.Cut(rest, ",")
	return check.Value(strconv.Atoi(n)).In(t)
}
