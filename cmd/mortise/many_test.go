//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

var many = flag.Bool("many", false, "100,000 locks in TestManyLocks, and bounds on real time: on a quiet machine")

// What TestManyLocks has in a store; a hundredth without the flag.
var (
	manyLocks  = 1_000
	manyKeys   = 10_000
	manyHashes = 500 // of those keys; each may be a lock, and is looked at
)

// The bounds.
const (
	mostMemory = 64 << 10 // KiB
	firstPage  = time.Second
	slowest    = 10 * time.Millisecond // on the server
)

// peak is the most memory that the program has had, in KiB; zero if it has ended.
func (p *program) peak() int { p.t.Helper(); return peakOf(p.t, fmt.Sprint(p.Process.Pid)) }

// peakOf is that of a process.
func peakOf(t testing.TB, pid string) int {
	t.Helper()
	text, _ := os.ReadFile("/proc/" + pid + "/status")
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	if m == nil {
		return 0
	}
	return check.Value(strconv.Atoi(string(m[1]))).In(t)
}

// fillMany puts the locks and the other keys into a store.
func fillMany(t *testing.T, s *redistest.Server) {
	s.Must("DEBUG", "POPULATE", fmt.Sprint(manyKeys-manyHashes))
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer rdb.Close()
	for n := 0; n < manyLocks; n += 1000 {
		pipe := rdb.Pipeline()
		for i := n; i < n+1000; i++ {
			name := fmt.Sprintf("orders:%08d", i)
			pipe.HSet(t.Context(), name, fmt.Sprintf("worker-%02d/%d/%08x:1", i%50, 1000+i%500, i), 1)
			pipe.PExpire(t.Context(), name, time.Hour)
			if i < manyHashes {
				pipe.HSet(t.Context(), fmt.Sprintf("orders:data:%d", i), "name", "x", "price", "12.50")
			}
		}
		check.Value(pipe.Exec(t.Context())).In(t)
	}
	check.Equal(t, "%v keys", fmt.Sprint(s.Must("DBSIZE")), fmt.Sprint(manyKeys+manyLocks))
}

// Many locks among many more other keys cost little memory, and nothing that takes long on the server.
func TestManyLocks(t *testing.T) {
	check.Long(t)
	if *many {
		manyLocks, manyKeys, manyHashes = 100*manyLocks, 100*manyKeys, 100*manyHashes
	}
	server := redistest.Start(t, redistest.WithConfig("enable-debug-command yes"))
	fillMany(t, server)
	server.Must("CONFIG", "SET", "slowlog-log-slower-than", fmt.Sprint(slowest.Microseconds()))
	for name, look := range map[string]func(t *testing.T, store string) looked{
		"ls":         func(t *testing.T, store string) looked { return lookLs(t, store) },
		"ls -o json": func(t *testing.T, store string) looked { return lookLs(t, store, "-o", "json") },
		"watch":      lookWatch, "console": lookConsole, "top": lookTop,
	} {
		t.Run(name, func(t *testing.T) {
			server.Must("SLOWLOG", "RESET")
			server.Must("CONFIG", "RESETSTAT")
			l := look(t, at(server))
			stats := fmt.Sprint(server.Must("INFO", "commandstats"))
			t.Logf("first %v, all %v, memory %.1f MiB; %q", l.first.Round(time.Millisecond), l.all.Round(time.Millisecond),
				float64(l.peak)/1024, regexp.MustCompile("cmdstat_(scan|evalsha|keys):.*per_call=[0-9.]+").FindAllString(stats, -1))
			check.ErrorIf(t, l.peak == 0, "the memory is not known")
			check.ErrorIf(t, *many && l.peak > mostMemory, "memory: %d KiB", l.peak)
			check.ErrorIf(t, *many && l.first > firstPage, "the first page after %v", l.first)
			noneIsSlow(t, server)
			check.ErrorIf(t, strings.Contains(stats, "cmdstat_keys:"), "KEYS was sent")
		})
	}
}

// noneIsSlow repeats each command of the slow log. The log has the time that the server waited for a processor, too; a
// command that takes long by itself does so each time.
func noneIsSlow(t *testing.T, s *redistest.Server) {
	const times = 5
	all := s.Must("SLOWLOG", "GET", "-1").([]any)
	for _, x := range all {
		entry := x.([]any)
		if entry[4] == "?:0" { // in a script, which is in the log, too
			continue
		}
		var args []string
		for _, a := range entry[3].([]any) {
			args = append(args, a.(string))
		}
		s.Must("SLOWLOG", "RESET")
		for range times {
			s.Must(args...)
		}
		again := 0
		for _, x := range s.Must("SLOWLOG", "GET", "-1").([]any) {
			if x.([]any)[4] != "?:0" {
				again++
			}
		}
		check.ErrorIf(t, again == times, "%q takes more than %v each time", args, slowest)
	}
	t.Logf("%d commands in the slow log, repeated", len(all))
}

// looked is what a look at all locks took.
type looked struct {
	first, all time.Duration
	peak       int // KiB
}

// manyLines reads lines that have a text, as many as there are locks.
func (p *program) manyLines(began time.Time, with string) (l looked) {
	p.t.Helper()
	check.Long(p.t)
	n := 0
	for s := bufio.NewScanner(p.lines); n < manyLocks && s.Scan(); {
		if !bytes.Contains(s.Bytes(), []byte(with)) {
			continue
		}
		if n++; n == 1 {
			l.first = time.Since(began)
		}
		if n%(manyLocks/20) == 1 {
			l.peak = max(l.peak, p.peak())
		}
	}
	check.FatalIf(p.t, n < manyLocks, "%d locks; %s", n, &p.said)
	l.all, l.peak = time.Since(began), max(l.peak, p.peak())
	return l
}

func lookLs(t *testing.T, store string, flags ...string) looked {
	began := time.Now()
	return begin(t, store, append([]string{"ls"}, flags...)...).manyLines(began, "worker-")
}

// lookWatch has a watch that has seen all of the locks again.
func lookWatch(t *testing.T, store string) looked {
	check.Long(t)
	began := time.Now()
	p := begin(t, store, "watch", "--every", "1s")
	l := p.manyLines(began, "held")
	go io.Copy(io.Discard, p.lines)
	time.Sleep(2*l.all + time.Second)
	l.peak = p.peak()
	return l
}

// lookTop has a top on a terminal that has read all locks twice.
func lookTop(t *testing.T, store string) (l looked) {
	check.Long(t)
	p := openPane(t, store, 160, 50)
	pid := strings.TrimSpace(p.tmux("display-message", "-p", "#{pane_pid}"))
	began := time.Now()
	p.enter("exec mortise top")
	p.shows("^orders:")
	l.first = time.Since(began)
	at := p.shows(fmt.Sprintf(`^46 of %d locks at (\S+),`, manyLocks))
	l.all = time.Since(began)
	p.until("the locks are read again", func() bool { return p.shows(`^46 of \d+ locks at (\S+),`) != at })
	l.peak = peakOf(t, pid)
	return l
}

// lookConsole has a console whose list is open, and that has sent the number of all locks.
func lookConsole(t *testing.T, store string) (l looked) {
	check.Long(t)
	p := begin(t, store, "console", "--listen", "127.0.0.1:0")
	address := p.line()
	began := time.Now()
	r := check.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, address+"events", nil)).In(t)
	res := check.Value(http.DefaultClient.Do(r)).In(t)
	defer res.Body.Close()
	events := bufio.NewScanner(res.Body)
	events.Buffer(nil, 1<<20)
	for events.Scan() {
		text, ok := strings.CutPrefix(events.Text(), "data: {")
		if !ok {
			continue
		}
		var s struct {
			Locks []any
			Total int
			Error string
		}
		check.Done(t, json.Unmarshal([]byte("{"+text), &s))
		check.FatalIf(t, s.Error != "", "%s", s.Error)
		if l.first == 0 && len(s.Locks) > 0 {
			l.first = time.Since(began)
		}
		if s.Total >= manyLocks {
			l.all, l.peak = time.Since(began), p.peak()
			return l
		}
	}
	t.Fatalf("the events ended: %v", events.Err())
	return l
}
