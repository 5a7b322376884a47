//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/cmd/mortise/internal/group"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/redisgo"
)

// asMain makes the test's own binary the program.
const asMain = "MORTISE_TEST_MAIN"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == workerCommand {
		os.Exit(worker(os.Args[2]))
	}
	helper := len(os.Args) > 1 && (os.Args[1] == group.GuardCommand || os.Args[1] == group.ExecCommand)
	if helper || os.Getenv(asMain) != "" {
		os.Exit(Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// program is a running mortise.
type program struct {
	*exec.Cmd
	t     testing.TB
	lines *bufio.Reader
	said  bytes.Buffer // what it wrote to the standard error
	ended chan struct{}
}

// begin starts the program with arguments, on a store.
func begin(t testing.TB, store string, args ...string) *program {
	t.Helper()
	return beginWith(t, store, nil, args...)
}

// beginWith does so with more in the environment.
func beginWith(t testing.TB, store string, env []string, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.Command(check.Value(os.Executable()).In(t), args...), t: t, ended: make(chan struct{})}
	// With the race detector each end of a program would else take a second.
	p.Env = append(os.Environ(), asMain+"=1", "MORTISE_STORE="+store, "GORACE=atexit_sleep_ms=10")
	p.Env = append(p.Env, env...)
	p.Stderr = &p.said
	r, w := io.Pipe()
	p.Stdout, p.lines = w, bufio.NewReader(r)
	p.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	check.Done(t, p.Start())
	go func() {
		p.Wait()
		w.Close()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.Process.Kill()
		go io.Copy(io.Discard, r)
		<-p.ended
	})
	return p
}

// line reads a line that the command wrote.
func (p *program) line() string {
	p.t.Helper()
	s, err := p.lines.ReadString('\n')
	check.FatalIf(p.t, err != nil, "no line: %v; %s", err, &p.said)
	return strings.TrimSpace(s)
}

// code awaits the end and returns the exit code.
func (p *program) code() int {
	go io.Copy(io.Discard, p.lines)
	<-p.ended
	return p.ProcessState.ExitCode()
}

// alive reports whether a process is there and no zombie.
func alive(pid string) bool {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(text), ") Z ")
}

// gone awaits the end of a process.
func gone(t *testing.T, pid string) {
	t.Helper()
	n := check.Value(strconv.Atoi(pid)).In(t)
	fd, err := unix.PidfdOpen(n, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	check.Done(t, err)
	defer unix.Close(fd)
	for alive(pid) {
		unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000)
	}
}

func client(t *testing.T, s *redistest.Server) *mortise.Client {
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
	locks := check.Value(mortise.New(redisgo.New(rdb))).In(t)
	t.Cleanup(func() { locks.Close(); rdb.Close() })
	return locks
}

func at(s *redistest.Server) string { return "redis://" + s.Addr() }

func TestTheExitCodeSaysWhatHappened(t *testing.T) {
	server := redistest.Start(t)
	lease := check.Value(client(t, server).Lock(t.Context(), "held")).In(t)
	defer lease.Unlock(context.Background())
	plain := t.TempDir() + "/plain"
	check.Done(t, os.WriteFile(plain, []byte("text"), 0o600))
	for name, x := range map[string]struct {
		args []string
		code int
	}{
		"success":               {[]string{"run", "n", "--", "true"}, 0},
		"the command's own":     {[]string{"run", "n", "--", "sh", "-c", "exit 7"}, 7},
		"by a signal":           {[]string{"run", "n", "--", "sh", "-c", "kill -TERM $$"}, 143},
		"not found":             {[]string{"run", "n", "--", "no-such-command"}, 127},
		"not executable":        {[]string{"run", "n", "--", plain}, 126},
		"held":                  {[]string{"run", "--try", "held", "--", "true"}, 75},
		"held, a success":       {[]string{"run", "--try", "-E", "0", "held", "--", "true"}, 0},
		"held, another code":    {[]string{"run", "--try", "-E", "9", "held", "--", "true"}, 9},
		"held longer than wait": {[]string{"run", "--wait", "50ms", "held", "--", "true"}, 75},
		"no command":            {[]string{"run", "n"}, 64},
		"two names":             {[]string{"run", "n", "m", "--", "true"}, 64},
		"no such flag":          {[]string{"run", "--no-such-flag", "n", "--", "true"}, 64},
		"an empty name":         {[]string{"run", "", "--", "true"}, 64},
		"no such store":         {[]string{"run", "--store", "mongodb://x", "n", "--", "true"}, 64},
		"a file":                {[]string{"run", "--store", "sqlite:" + t.TempDir() + "/l.db", "n", "--", "true"}, 0},
		"memory":                {[]string{"run", "--store", "memory:", "demo", "--", "true"}, 0},
		"inspect, held":         {[]string{"inspect", "held"}, 0},
		"inspect, free":         {[]string{"inspect", "free"}, 1},
		"ls, one":               {[]string{"ls", "he"}, 0},
		"ls, none":              {[]string{"ls", "x"}, 1},
		"unlock, free":          {[]string{"unlock", "--yes", "free"}, 1},
		"doctor":                {[]string{"doctor"}, 0},
		"version":               {[]string{"version"}, 0},
		"bench, no callers":     {[]string{"bench", "--callers", "0"}, 64},
		"bench, too long":       {[]string{"bench", "--time", "2m"}, 64},
		"bench, read-only":      {[]string{"bench", "--read-only"}, 64},
	} {
		t.Run(name, func(t *testing.T) {
			p := begin(t, at(server), x.args...)
			if code := p.code(); code != x.code {
				t.Errorf("exit code %d, want %d; %s", code, x.code, &p.said)
			}
		})
	}
	if left := server.Must("EXISTS", "n"); fmt.Sprint(left) != "0" {
		t.Error("a lock is left")
	}
}

func TestARefusalSaysWhoHoldsTheLock(t *testing.T) {
	server := redistest.Start(t)
	lease := check.Value(client(t, server).Lock(t.Context(), "held")).In(t)
	defer lease.Unlock(context.Background())
	for _, how := range []string{"--try", "--wait=50ms"} {
		p := begin(t, at(server), "run", how, "held", "--", "true")
		if code := p.code(); code != 75 || !strings.Contains(p.said.String(), "; held by "+lease.Owner()) {
			t.Errorf("%s: exit code %d, %s", how, code, &p.said)
		}
	}
}

func TestAStoreThatDoesNotAnswerIsUnavailable(t *testing.T) {
	check.Long(t)
	for _, args := range [][]string{
		{"run", "n", "--", "true"}, {"run", "--shared", "n", "--", "true"}, {"run", "--of", "2", "n", "--", "true"},
		{"run", "--every", "1h", "n", "--", "true"}, {"ls"}, {"inspect", "n"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			p := begin(t, "redis://127.0.0.1:1?max_retries=-1", args...)
			check.ErrorIf(t, p.code() != codeUnavailable, "exit code %d; %s", p.ProcessState.ExitCode(), &p.said)
		})
	}
}

func TestTheCommandFindsLockOwnerAndTokenInItsEnvironment(t *testing.T) {
	server := redistest.Start(t)
	p := begin(t, at(server), "run", "--fenced", "--prefix", "app:", "n", "--", "sh", "-c",
		`echo "$MORTISE_LOCK $MORTISE_TOKEN $MORTISE_OWNER"`)
	var name, owner string
	var token int64
	check.Value(fmt.Sscan(p.line(), &name, &token, &owner)).In(t)
	if name != "app:n" || token < 1 || !strings.Contains(owner, ":") {
		t.Errorf("%q, %d, %q", name, token, owner)
	}
	check.ErrorIf(t, p.code() != 0, "exit code %d; %s", p.ProcessState.ExitCode(), &p.said)
}

func TestSignalsReachTheWholeGroup(t *testing.T) {
	server := redistest.Start(t)
	for _, s := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH} {
		t.Run(s.String(), func(t *testing.T) {
			name := strings.TrimPrefix(unix.SignalName(s), "SIG")
			p := begin(t, at(server), "run", s.String(), "--", "bash", "-c",
				"trap 'echo got; exit 3' "+name+"; echo ready; while :; do sleep 0.01; done")
			check.ErrorIf(t, p.line() != "ready", "not ready")
			check.Done(t, p.Process.Signal(s))
			check.ErrorIf(t, p.line() != "got", "the command did not get it")
			check.ErrorIf(t, p.code() != 3, "exit code %d; %s", p.ProcessState.ExitCode(), &p.said)
		})
	}
}

// A stopped command goes on by a signal; a stopped mortise leaves it at work within the lease, and goes on, too.
func TestStopsAndContinuesReachTheCommand(t *testing.T) {
	check.Long(t)
	p := begin(t, at(redistest.Start(t)), "run", "n", "--", "bash", "-c", "echo $$; "+untilUSR1)
	child, self := p.line(), strconv.Itoa(p.Process.Pid)
	check.Equal(t, "the command says %q", p.line(), "in")
	for _, x := range []struct {
		signal  unix.Signal
		stopped string
	}{{unix.SIGTSTP, child}, {unix.SIGSTOP, self}, {unix.SIGTSTP, child}} {
		check.Done(t, p.Process.Signal(x.signal))
		await(t, x.signal.String(), func() bool { return stopped(x.stopped) })
		check.Done(t, p.Process.Signal(unix.SIGCONT))
		await(t, "goes on after "+x.signal.String(), func() bool { return !stopped(self) && !stopped(child) })
	}
	p.finish()
}

// await awaits something of other processes.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	check.Long(t)
	for end := time.Now().Add(within); !ok(); time.Sleep(5 * time.Millisecond) {
		check.FatalIf(t, time.Now().After(end), "not in %v: %s", within, what)
	}
}

// within bounds what is awaited of other processes, and on a screen.
const within = time.Minute

// stubborn ignores TERM, and has a child that does so. It writes the process numbers of both.
const stubborn = `trap "" TERM; sh -c 'trap "" TERM; echo $$; exec sleep 1000' & echo $$; wait; exec sleep 1000`

// Whatever happens to mortise or to the store: when the next one has the lock, no process of the command's is left.
func TestNoProcessOfTheCommandIsLeftWhenAnotherHasTheLock(t *testing.T) {
	check.Long(t)
	for name, x := range map[string]struct {
		do   func(t *testing.T, p *program, s *redistest.Server)
		code int
	}{
		"mortise is killed": {func(t *testing.T, p *program, _ *redistest.Server) { check.Done(t, p.Process.Kill()) }, -1},
		"mortise is stopped": {func(t *testing.T, p *program, _ *redistest.Server) {
			check.Done(t, p.Process.Signal(unix.SIGSTOP))
		}, 76},
		"the record is removed": {func(t *testing.T, _ *program, s *redistest.Server) { s.Must("DEL", "n") }, 76},
		"the command ends, and its child does not": {func(t *testing.T, p *program, _ *redistest.Server) {
			check.Done(t, p.Process.Signal(unix.SIGUSR1))
		}, 128 + int(unix.SIGUSR1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := begin(t, at(server), "run", "--lease", "2s", "--grace", "200ms", "n", "--", "sh", "-c", stubborn)
			a, b := p.line(), p.line()
			check.ErrorIf(t, !alive(a) || !alive(b), "the command is not at work")
			next := client(t, server)
			x.do(t, p, server)
			if name == "the record is removed" { // an operator's DEL: its loss is known at the next renewal
				gone(t, a)
				gone(t, b)
			}
			lease := check.Value(next.Lock(t.Context(), "n")).In(t)
			if alive(a) || alive(b) {
				t.Errorf("another has the lock, and %s, %s are at work: %v, %v", a, b, alive(a), alive(b))
			}
			check.Done(t, lease.Unlock(context.Background()))
			p.Process.Signal(unix.SIGCONT)
			check.ErrorIf(t, p.code() != x.code, "exit code %d, want %d; %s", p.ProcessState.ExitCode(), x.code, &p.said)
		})
	}
}

func TestAStoreThatIsAwayEndsTheCommandWithinTheLease(t *testing.T) {
	check.Long(t)
	server := redistest.Start(t)
	p := begin(t, at(server), "run", "--lease", "2s", "--grace", "1s", "n", "--", "bash", "-c",
		"trap 'echo asked; exit 4' TERM; echo ready; while :; do sleep 0.01; done")
	check.ErrorIf(t, p.line() != "ready", "not ready")
	server.Stop()
	check.ErrorIf(t, p.line() != "asked", "the command was not asked to end")
	code := p.code()
	check.ErrorIf(t, code != 4 && code != codeLost, "exit code %d; %s", code, &p.said)
}

func TestLsAndInspectShowWhoHoldsAndWaits(t *testing.T) {
	server := redistest.Start(t)
	locks := client(t, server)
	lease := check.Value(locks.Lock(t.Context(), "orders:42", mortise.Fenced())).In(t)
	defer lease.Unlock(context.Background())
	host := check.Value(os.Hostname()).In(t)
	for _, args := range [][]string{{"ls", "orders:"}, {"inspect", "orders:42"}} {
		p := begin(t, at(server), args...)
		text := check.Value(io.ReadAll(p.lines)).In(t)
		<-p.ended
		pid, token := strconv.Itoa(os.Getpid()), strconv.FormatInt(lease.Token(), 10)
		for _, want := range []string{"orders:42", "lock", host, pid, token} {
			check.ErrorIf(t, !strings.Contains(string(text), want), "%v: no %q in\n%s%s", args, want, text, &p.said)
		}
	}
}

func TestUnlockFreesTheOwnerThatItShowed(t *testing.T) {
	server := redistest.Start(t)
	locks := client(t, server)
	lease := check.Value(locks.Lock(t.Context(), "n")).In(t)
	p := begin(t, at(server), "unlock", "--yes", "n")
	check.ErrorIf(t, p.code() != 0, "exit code %d; %s", p.ProcessState.ExitCode(), &p.said)
	check.Is(t, "the owner's Unlock", lease.Unlock(context.Background()), mortise.ErrLost)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	check.Done(t, check.Value(locks.Lock(ctx, "n")).In(t).Unlock(ctx))
}
