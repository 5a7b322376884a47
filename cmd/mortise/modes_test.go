//go:build linux

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// untilUSR1 says "in", and ends when it is told.
const untilUSR1 = "trap 'exit 0' USR1; echo in; while :; do sleep 0.01; done"

// working begins a run whose command is at work when it returns.
func working(t *testing.T, store string, flags ...string) *program {
	t.Helper()
	p := begin(t, store, append(append([]string{"run"}, flags...), "--", "bash", "-c", untilUSR1)...)
	check.Equal(t, "the command says %q", p.line(), "in")
	return p
}

// finish ends such a run.
func (p *program) finish() {
	p.t.Helper()
	check.Done(p.t, p.Process.Signal(unix.SIGUSR1))
	check.ErrorIf(p.t, p.code() != 0, "exit code %d; %s", p.ProcessState.ExitCode(), &p.said)
}

// stores are those that processes share.
func stores(t *testing.T) map[string]string {
	return map[string]string{"Redis": at(redistest.Start(t)), "SQLite": "sqlite:" + t.TempDir() + "/locks.db"}
}

// refused checks that a run which does not wait ends with code 75.
func refused(t *testing.T, store string, flags ...string) {
	t.Helper()
	p := begin(t, store, append(append([]string{"run", "--try"}, flags...), "--", "true")...)
	check.ErrorIf(t, p.code() != codeNotAcquired, "%v: exit code %d; %s", flags, p.ProcessState.ExitCode(), &p.said)
}

func TestSharedCommandsRunTogetherAndNoneBesideAWriter(t *testing.T) {
	check.Long(t)
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			a := working(t, store, "--shared", "n")
			b := working(t, store, "--shared", "--try", "n")
			refused(t, store, "--exclusive", "n")
			a.finish()
			refused(t, store, "--exclusive", "n")
			b.finish()
			w := working(t, store, "--try", "--exclusive", "other")
			refused(t, store, "--shared", "other")
			w.finish()
			reader := working(t, store, "--shared", "--try", "other")
			p := begin(t, store, "run", "--try", "other", "--", "true")
			check.Equal(t, "exit code %d", p.code(), codeUsage)
			check.ErrorIf(t, !strings.Contains(p.said.String(), "--exclusive"), "no remedy: %s", &p.said)
			reader.finish()
		})
	}
}

func TestSoManyCommandsRunTogetherAsThereArePermits(t *testing.T) {
	check.Long(t)
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			a := working(t, store, "--of", "3", "--permits", "2", "n")
			b := working(t, store, "--of", "3", "n")
			refused(t, store, "--of", "3", "n")
			a.finish()
			refused(t, store, "--of", "3", "--permits", "3", "n")
			c := working(t, store, "--of", "0", "--permits", "2", "n") // the store's number
			refused(t, store, "--of", "0", "n")
			b.finish()
			c.finish()
			working(t, store, "--of", "3", "--permits", "3", "--try", "n").finish()
		})
	}
}

// Whatever a command holds, it goes on for longer than a lease, and is killed before it can be another's.
func TestEachKindIsRenewedAndGuarded(t *testing.T) {
	check.Long(t)
	const lease = 2 * time.Second // a busy machine may keep a process from its turn for a second
	for name, flags := range map[string][]string{
		"lock": {}, "fair": {"--fair"}, "fenced": {"--fenced"}, "shared": {"--shared"}, "exclusive": {"--exclusive"},
		"permits": {"--of", "3", "--permits", "3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := at(redistest.Start(t))
			run := append([]string{"run", "--lease", lease.String(), "--grace", "100ms"}, flags...)
			ends := begin(t, store, append(run, "n", "--", "sleep", fmt.Sprint((5*lease/2).Seconds()))...)
			check.ErrorIf(t, ends.code() != 0, "exit code %d; %s", ends.ProcessState.ExitCode(), &ends.said)
			p := begin(t, store, append(run, "n", "--", "sh", "-c", stubborn)...)
			a, b := p.line(), p.line()
			check.Done(t, p.Process.Signal(unix.SIGSTOP))
			next := flags
			if name == "shared" {
				next = []string{"--exclusive"} // another reader need not wait
			}
			other := working(t, store, append(next, "n")...)
			check.ErrorIf(t, alive(a) || alive(b), "another has it, and %s, %s are at work", a, b)
			other.finish()
			check.Done(t, p.Process.Signal(unix.SIGCONT))
			check.Equal(t, "exit code %d", p.code(), codeLost)
		})
	}
}

// Processes that are started again and again run a command once in each tick.
func TestACommandIsStartedOnceInEachTick(t *testing.T) {
	check.Long(t)
	for name, store := range stores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := t.TempDir() + "/ticks"
			started, rounds := 0, 0
			for ; started < 3; rounds++ {
				var all []*program
				for range 3 {
					all = append(all, begin(t, store, "run", "--every", "500ms", "n", "--", "sh", "-c",
						`echo "$MORTISE_TICK" >>`+file))
				}
				for _, p := range all {
					switch p.code() {
					case 0:
						started++
					case codeNotAcquired:
						said := p.said.String()
						check.ErrorIf(t, strings.Count(said, "\n") != 1 || !strings.Contains(said, "the tick of "), "%q", said)
					default:
						t.Fatalf("exit code %d; %s", p.ProcessState.ExitCode(), &p.said)
					}
				}
			}
			text := check.Value(os.ReadFile(file)).In(t)
			ticks := strings.Fields(string(text))
			check.Equal(t, "%d ticks", len(ticks), started)
			slices.Sort(ticks)
			check.ErrorIf(t, len(slices.Compact(slices.Clone(ticks))) != started, "a tick was started twice: %q", ticks)
			for _, at := range ticks {
				tick := check.Value(time.Parse(time.RFC3339Nano, at)).In(t)
				check.ErrorIf(t, tick.UnixMilli()%500 != 0, "%s is no tick", at)
			}
			t.Logf("%d starts in %d rounds of 3", started, rounds)
		})
	}
}

func TestATickThatIsTakenSaysWhichAndWhoHoldsTheLock(t *testing.T) {
	server := redistest.Start(t)
	lease := check.Value(client(t, server).Lock(t.Context(), "n")).In(t)
	defer lease.Unlock(t.Context())
	for _, x := range []struct {
		flags []string
		code  int
	}{
		{nil, codeNotAcquired}, {[]string{"-E", "0"}, 0}, {[]string{"-E", "7", "--offset", "12h"}, 7},
	} {
		p := begin(t, at(server), append(append([]string{"run", "--every", "8784h"}, x.flags...), "n", "--", "true")...)
		check.Equal(t, "exit code %d", p.code(), x.code)
		for _, want := range []string{"n: the tick of ", "the next is that of ", "held by "} {
			check.ErrorIf(t, !strings.Contains(p.said.String(), want), "%q", &p.said)
		}
	}
}

func TestFlagsThatDoNotGoTogetherAreRefusedWithARemedy(t *testing.T) {
	for flags, want := range map[string]string{
		"--try --wait 1s":         "leave one out",
		"--wait 0s":               "--try",
		"--wait -1s":              "--try",
		"--shared --exclusive":    "leave one out",
		"--exclusive --fair":      "leave out --fair",
		"--exclusive --fenced":    "leave out --fenced",
		"--exclusive --of 3":      "leave out --exclusive",
		"--exclusive --permits 3": "leave out --exclusive",
		"--shared --fair":         "leave out --fair",
		"--shared --fenced":       "leave out --fenced",
		"--shared --of 3":         "leave out --shared",
		"--shared --permits 2":    "leave out --shared",
		"--of 3 --fair":           "leave out --fair",
		"--of 3 --fenced":         "leave out --fenced",
		"--permits 2":             "--of 4",
		"--of -1":                 "not negative",
		"--of 3 --permits 0":      "between 1 and 128",
		"--of 300 --permits 129":  "between 1 and 128",
		"--of 3 --permits 4":      "raise --of",
		"--offset 1m":             "--every",
		"--every 0s":              "--every 1h",
		"--every 1ms":             "10",
		"--every 1h --offset 1h":  "offset",
		"--lease 1ms":             "",
	} {
		p := begin(t, "memory:", append(append([]string{"run"}, strings.Fields(flags)...), "n", "--", "true")...)
		check.ErrorIf(t, p.code() != codeUsage, "%s: exit code %d; %s", flags, p.ProcessState.ExitCode(), &p.said)
		check.ErrorIf(t, !strings.Contains(p.said.String(), want), "%s: no %q in %s", flags, want, &p.said)
	}
}

// In memory there is no other process; each flag works all the same.
func TestEachFlagWorksInMemory(t *testing.T) {
	check.Long(t)
	for _, flags := range []string{
		"", "--try", "--wait 1s", "--fair", "--fenced", "--shared", "--exclusive", "--of 4", "--of 4 --permits 4 --try",
		"--of 1 --wait 1s",
	} {
		p := begin(t, "memory:", append(append([]string{"run"}, strings.Fields(flags)...), "n", "--", "sh", "-c",
			`test -n "$MORTISE_OWNER" -a "$MORTISE_LOCK" = n && exit 5`)...)
		check.ErrorIf(t, p.code() != 5, "%q: exit code %d; %s", flags, p.ProcessState.ExitCode(), &p.said)
	}
}
