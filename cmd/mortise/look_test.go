//go:build linux

package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// text is what the program writes, until it has ended with code 0.
func text(t *testing.T, store string, args ...string) string {
	t.Helper()
	p := begin(t, store, args...)
	all := check.Value(io.ReadAll(p.lines)).In(t)
	<-p.ended
	check.FatalIf(t, p.ProcessState.ExitCode() != 0, "%v: exit code %d; %s", args, p.ProcessState.ExitCode(), &p.said)
	return string(all)
}

func TestEachFormatSaysWhoHoldsALock(t *testing.T) {
	server := redistest.Start(t)
	locks := client(t, server)
	lease := check.Value(locks.Lock(t.Context(), "orders:42", mortise.Fenced())).In(t)
	defer lease.Unlock(context.Background())
	owner := check.Value(locks.Inspect(t.Context(), "orders:42")).In(t).Owner
	for _, command := range [][]string{{"ls", "orders:"}, {"inspect", "orders:42"}} {
		in := func(format string) string { return text(t, at(server), append(command, "-o", format)...) }
		for format, decode := range map[string]func([]byte, any) error{"json": json.Unmarshal, "yaml": yaml.Unmarshal} {
			var l lock
			check.Done(t, decode([]byte(in(format)), &l))
			if l.Name != "orders:42" || l.Owner != owner || l.Token != lease.Token() || l.PID != os.Getpid() ||
				!l.Held || l.Kind != "lock" || l.LeftMS == nil || *l.LeftMS <= 0 {
				t.Errorf("%v -o %s: %+v", command, format, l)
			}
		}
		check.Equal(t, "-o name: %q", in("name"), "orders:42\n")
		check.ErrorIf(t, !strings.Contains(in("wide"), owner), "%v -o wide: no owner", command)
	}
}

// A name, or an owner, may have what moves a terminal's cursor, or sets its title.
func TestWhatOthersWroteCannotReachTheTerminal(t *testing.T) {
	server := redistest.Start(t)
	server.Must("HSET", "evil\x1b]0;title\a\tname\n", "\x1b[2Jowner:1", "1")
	for _, args := range [][]string{
		{"ls"}, {"ls", "-o", "wide"}, {"ls", "-o", "json"}, {"ls", "-o", "yaml"}, {"inspect", "evil\x1b]0;title\a\tname\n"},
	} {
		out := text(t, at(server), args...)
		check.ErrorIf(t, strings.ContainsAny(out, "\x1b\a"), "%v: %q", args, out)
		check.ErrorIf(t, !strings.Contains(out, "evil"), "%v: %q", args, out)
	}
	out := text(t, at(server), "__complete", "inspect", "evil")
	check.ErrorIf(t, strings.ContainsAny(out, "\x1b\a"), "completion: %q", out)
}

func TestNamesAreCompleted(t *testing.T) {
	server := redistest.Start(t)
	locks := client(t, server)
	for _, name := range []string{"orders:1", "orders:2", "other"} {
		lease := check.Value(locks.Lock(t.Context(), name)).In(t)
		defer lease.Unlock(context.Background())
	}
	for _, command := range []string{"inspect", "unlock", "ls", "watch"} {
		got := strings.Fields(text(t, at(server), "__complete", command, "ord"))
		slices.Sort(got)
		check.Equal(t, command+" is completed by %q", strings.Join(got, " "), ":4 orders:1 orders:2")
	}
}

func TestWatchWritesEachChange(t *testing.T) {
	server := redistest.Start(t)
	locks, other := client(t, server), client(t, server)
	lease := check.Value(locks.Lock(t.Context(), "n")).In(t)
	p := begin(t, at(server), "watch", "--every", "10ms", "-o", "json", "n")
	next := func() (what string, l lock) {
		t.Helper()
		var x struct {
			What string
			Lock lock
		}
		check.Done(t, json.Unmarshal([]byte(p.line()), &x))
		return x.What, x.Lock
	}
	what, first := next()
	check.ErrorIf(t, what != "held" || first.Owner == "", "%s %+v", what, first)
	got := make(chan *mortise.Lease, 1)
	go func() {
		l, _ := other.Lock(t.Context(), "n")
		got <- l
	}()
	what, l := next()
	check.ErrorIf(t, what != "waiters" || l.Waiters != 1, "%s %+v", what, l)
	check.Done(t, lease.Unlock(t.Context()))
	lease = <-got
	what, l = next()
	check.ErrorIf(t, what != "owner" || l.Owner == first.Owner || l.Waiters != 0, "%s %+v", what, l)
	check.Done(t, lease.Unlock(t.Context()))
	what, l = next()
	check.ErrorIf(t, what != "freed" || l.Name != "n", "%s %+v", what, l)
	check.Done(t, p.Process.Signal(unix.SIGINT))
	check.ErrorIf(t, p.code() != 0, "exit code %d; %s", p.ProcessState.ExitCode(), &p.said)
}

func TestAReadOnlyProgramChangesNothing(t *testing.T) {
	server := redistest.Start(t)
	lease := check.Value(client(t, server).Lock(t.Context(), "n")).In(t)
	for _, args := range [][]string{{"unlock", "--yes", "n"}, {"run", "m", "--", "true"}} {
		p := begin(t, at(server), append([]string{"--read-only"}, args...)...)
		check.Equal(t, "exit code %d", p.code(), codeUsage)
	}
	check.Done(t, lease.Unlock(t.Context()))
}
