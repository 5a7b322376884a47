//go:build linux

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend/redisproto"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// What is generated of performance.md stands between these.
const (
	beginMark = "<!-- bench: from here on written by `make bench` -->\n"
	endMark   = "<!-- bench: up to here -->\n"
)

var redisVersion = regexp.MustCompile(`redis_version:([^\r\n]+)`)

// describe says what was measured on what, and what is missing.
func describe(t testing.TB, h *hosts) string {
	t.Helper()
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	add("%d cores", runtime.NumCPU())
	if m := redisVersion.FindStringSubmatch(fmt.Sprint(h.redis.Must("INFO", "server"))); m != nil {
		add("Redis %s, server and clients on the same machine", m[1])
	}
	add("%s", strings.Replace(runtime.Version(), "go", "Go ", 1))
	for _, m := range []struct{ name, path string }{
		{"go-redis", "github.com/redis/go-redis/v9"},
		{"rueidis and its rueidislock", "github.com/redis/rueidis"},
		{"redsync", "github.com/go-redsync/redsync/v4"},
		{"bsm/redislock", "github.com/bsm/redislock"},
	} {
		version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", m.path).Output()
		harness.FatalIf(t, err != nil, "go list -m %s: %v", m.path, err)
		add("%s %s", m.name, strings.TrimPrefix(strings.TrimSpace(string(version)), "v"))
	}
	var missing []string
	if h.java != nil {
		add("Redisson %s on %s", redissonVersion, javaVersion())
	} else {
		missing = append(missing, "Redisson (a JDK and Maven)")
	}
	if h.etcd != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if status, err := h.etcd.client.Status(ctx, h.etcd.address); err == nil {
			add("etcd %s, which writes to the disk before it answers", status.Version)
		}
	} else {
		missing = append(missing, "etcd (etcd-server)")
	}
	out := strings.Join(parts, ", ") + "."
	if len(missing) > 0 {
		out += " Not there, and left out: " + strings.Join(missing, ", ") + "."
	}
	return out
}

// write draws the plots and renews the generated part of performance.md in dir. What was not run
// is left out, so all has to be.
func (r *results) write(dir string) error {
	if *only != "" {
		return errors.New("-docs needs all workloads: leave -workload out")
	}
	if err := r.draw(dir); err != nil {
		return err
	}
	path := filepath.Join(dir, "performance.md")
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var part bytes.Buffer
	r.page(&part)
	page, err = splice(page, part.Bytes())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, page, 0o644)
}

// splice puts part between the marks of page.
func splice(page, part []byte) ([]byte, error) {
	before, rest, ok := bytes.Cut(page, []byte(beginMark))
	_, after, closed := bytes.Cut(rest, []byte(endMark))
	if !ok || !closed {
		return nil, fmt.Errorf("it lacks the lines %q and %q", beginMark, endMark)
	}
	return bytes.Join([][]byte{before, []byte(beginMark), part, []byte(endMark), after}, nil), nil
}

// title is its name on the page.
func (c contender) title() string {
	if c.role == mine {
		return strings.Replace(c.name, "mortise", "**mortise**", 1)
	}
	return c.name
}

// column is one of a table on the page.
type column struct {
	head  string
	value func(name string) string
}

// table has a row for each contender that took part in any of the workloads.
func (r *results) table(out io.Writer, head string, workloads []string, columns []column) {
	fmt.Fprintf(out, "\n| %s |", head)
	for _, c := range columns {
		fmt.Fprintf(out, " %s |", c.head)
	}
	fmt.Fprintf(out, "\n|---|%s\n", strings.Repeat("---|", len(columns)))
	for _, c := range contenders() {
		took := false
		for _, w := range workloads {
			took = took || r.of[w] != nil && r.of[w].median[c.name].rate != 0
		}
		if !took {
			continue
		}
		fmt.Fprintf(out, "| %s |", c.title())
		for _, col := range columns {
			fmt.Fprintf(out, " %s |", col.value(c.name))
		}
		fmt.Fprintln(out)
	}
}

// column is a column with a figure.
func (r *results) column(head, workload string, get func(outcome) float64, format func(float64) string) column {
	return column{head, func(name string) string { return format(r.figure(workload, name, get)) }}
}

// beside is a column with the rate as a multiple of Redisson's.
func (r *results) beside(head, workload string) column {
	return column{head, func(name string) string {
		return number(r.figure(workload, name, rate)/r.figure(workload, "Redisson", rate), 2)
	}}
}

func digits(n int) func(float64) string { return func(v float64) string { return number(v, n) } }

func (r *results) page(out io.Writer) {
	light := ""
	if !*every {
		light = "; one round where no bar rests on the times"
	}
	fmt.Fprintf(out, "\n`make bench`, on %s: %s Medians of %d rounds%s.\n", r.at.UTC().Format(time.DateOnly), r.setting, *rounds, light)

	u := []string{"uncontended 1", "uncontended 32", "uncontended 256"}
	var columns []column
	for i, n := range []string{"1", "32", "256"} {
		columns = append(columns, r.column(n+": per second", u[i], rate, digits(0)), r.column("p99", u[i], p99, micros))
	}
	columns = append(columns, r.column("commands", u[1], commands, digits(1)), r.column("allocations", u[1], allocs, digits(0)),
		r.column("client CPU", u[1], func(o outcome) float64 { return o.cpu }, micros),
		r.column("server CPU", u[1], func(o outcome) float64 { return o.server }, micros), r.beside("x Redisson, at 32", u[1]))
	fmt.Fprintf(out, "\n### A name each\n\nLock and Unlock by 1, 32 and 256 goroutines of one process; the columns without a number are of 32.\n")
	r.table(out, "", u, columns)

	fmt.Fprintf(out, "\n### Where the time goes\n\nOf a Lock and an Unlock, in a run of %v with Go's profiler on; switches are of the client's threads, parts of its profile.\n", profileFor)
	r.spending(out)

	fmt.Fprintf(out, "\n### One process\n")
	r.table(out, "TryLock of a held lock", []string{"refused"}, []column{
		r.column("per second", "refused", rate, digits(0)), r.column("commands", "refused", commands, digits(2)), r.beside("x Redisson", "refused"),
	})
	local := "contended 1x64"
	r.table(out, "64 goroutines, one name, held 0", []string{local}, []column{
		r.column("handoffs/s", local, rate, digits(0)), r.column("commands each", local, commands, digits(2)), r.column("p99 wait", local, p99, micros),
		r.column("p99 / mean", local, spread, digits(1)), r.column("Jain's index", local, func(o outcome) float64 { return o.jain }, digits(3)), r.beside("x Redisson", local),
	})

	crowd := "contended 8x16"
	fmt.Fprintf(out, "\n### 8 processes, 16 goroutines each, one name, held 1 ms\n")
	r.table(out, "", []string{crowd}, []column{
		r.column("handoffs/s", crowd, rate, digits(0)), r.column("commands each", crowd, commands, digits(2)), r.column("p50 wait", crowd, func(o outcome) float64 { return o.p50 }, micros),
		r.column("p99 wait", crowd, p99, micros), r.column("longest", crowd, func(o outcome) float64 { return o.max }, micros), r.column("p99 / mean", crowd, spread, digits(1)),
		r.column("Jain's index", crowd, func(o outcome) float64 { return o.jain }, digits(3)), r.column("held", crowd, func(o outcome) float64 { return o.held }, micros),
		r.beside("x Redisson", crowd),
	})

	fmt.Fprintf(out, "\n### More waiters, more processes\n")
	for _, p := range plots {
		fmt.Fprintf(out, "\n![%s, against waiters](%s)\n", p.title, p.file)
	}
	var names []string
	columns = nil
	for _, n := range waiterSteps {
		w := waitersWorkload(n)
		names = append(names, w)
		columns = append(columns, column{fmt.Sprintf("%d waiters", 8*n), r.handoffs(w)})
	}
	fmt.Fprintf(out, "\nHandoffs per second / commands for each. 8 processes, held 1 ms:\n")
	r.table(out, "", names, columns)
	for _, hold := range []string{"", " held 0"} {
		names, columns = nil, nil
		for _, n := range []int{2, 4, 8, 16} {
			w := fmt.Sprintf("contended %dx16%s", n, hold)
			names = append(names, w)
			columns = append(columns, column{fmt.Sprintf("%d processes", n), r.handoffs(w)})
		}
		fmt.Fprintf(out, "\n16 goroutines in each process, %s:\n", map[string]string{"": "held 1 ms", " held 0": "held 0"}[hold])
		r.table(out, "", names, columns)
	}

	var failed []string
	for _, w := range workloads() {
		if one := r.of[w.name]; one != nil {
			failed = append(failed, one.failed...)
		}
	}
	if len(failed) > 0 {
		fmt.Fprintf(out, "\nRuns that failed, and are in no figure:\n\n")
		for _, why := range failed {
			line, _, _ := strings.Cut(why, "\n")
			fmt.Fprintf(out, "- %s\n", line)
		}
	}

	slow, far := "slow uncontended 1", "slow contended 4x4"
	fmt.Fprintf(out, "\n### A server 10 ms away, each way\n\nRound trips are 20 ms. Contended: 4 processes, 4 goroutines each, one name, held 0.\n")
	r.table(out, "", []string{slow, far}, []column{
		r.column("Lock and Unlock, in round trips", slow, trips, digits(2)), r.column("contended: handoffs/s", far, rate, digits(1)),
		r.column("commands each", far, commands, digits(2)), r.column("p99 wait", far, p99, micros), r.beside("x Redisson", far),
	})

	fmt.Fprintf(out, "\n### Many leases\n\nOne client, watchdog timeout 30 s, held for %v. Expected commands are leases, by 10 s, by %d, or with client-side caching by %d (decisions 26).\n\n", *leaseFor, allAtOnce, redisproto.TrackedBatch)
	fmt.Fprintln(out, "| | leases | own goroutines | all goroutines | bytes each | lost | commands per second | expected | of the server, each |\n|---|---|---|---|---|---|---|---|---|")
	for _, h := range r.held {
		fmt.Fprintf(out, "| %s | %d | %d | %d | %.0f | %d | %.1f | %.1f | %s |\n",
			strings.Replace(h.contender, "mortise", "**mortise**", 1), h.leases, h.goroutines, h.all, h.bytes, max(h.lost, h.missing), h.commands, h.want, micros(h.each))
	}

	fmt.Fprintf(out, "\n### The bars\n\nWhat this project wants of itself, and where it stands.\n\n| | wanted | measured | |\n|---|---|---|---|\n")
	for _, b := range r.bars() {
		mark := ""
		if !b.met() {
			mark = "**missed**"
		}
		fmt.Fprintf(out, "| %s | %s %s | %.2f | %s |\n", b.what, map[bool]string{true: "≥", false: "≤"}[b.least], strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", b.want), "0"), "."), b.got, mark)
	}
	fmt.Fprintln(out)
}

func (r *results) handoffs(workload string) func(name string) string {
	return func(name string) string {
		v := r.figure(workload, name, rate)
		if v != v {
			return "-"
		}
		return number(v, 0) + " / " + number(r.figure(workload, name, commands), 1)
	}
}
