package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/mortise-go/mortise"
)

// runFlags are the flags of run.
type runFlags struct {
	wait          time.Duration
	try           bool
	fair, fenced  bool
	shared        bool
	exclusive     bool
	permits, of   int
	every, offset time.Duration
	lease, grace  time.Duration
	notAcquiredAs int
	given         func(flag string) bool
}

func runCommand(s *settings, code *int) *cobra.Command {
	f := new(runFlags)
	c := &cobra.Command{
		Use:   "run NAME [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lock",
		Long: `Run a command while holding a lock. There is no shell in between. The command runs in a process group of its
own, which gets all signals that mortise gets. If the lock is lost, or its store is away for so long that it may be, the
group gets TERM, and KILL before the lock can be another's. So it does if mortise itself is killed or stopped. What
leaves the group, by setsid or as a daemon, is out of reach.

When the command ends, what is left of its group gets TERM, and KILL after the grace; then the lock is released.

One command at a time has a name. Of a name that is used with --shared and --exclusive, a read-write lock, all commands
with --shared run together, and none beside one with --exclusive. With --of 4, four commands run together, over all
machines; --permits 2 lets one count as two of them. A name is used in one of these three ways.

With --every 1m the command is started at most once in each minute, in the whole fleet and by the store's clock; else
the exit code is 75. The ticks are multiples of the interval since 1970, in UTC; --offset moves them. Start mortise
halfway between two ticks, so that no clock is on the other side of a tick: with a crontab at each full minute,
--every 1m --offset 30s. The tick is claimed first, and the lock taken after it, as the other flags say: a tick whose
command does not get the lock is not run. A new name begins with the next tick.

The command finds in its environment: MORTISE_LOCK, MORTISE_OWNER (of permits, their ids), with --fenced MORTISE_TOKEN,
with --every MORTISE_TICK, the time of the tick.

Exit codes:
  the command's own; 128 + n if signal n ended it
  64   wrong usage
  69   the store is unavailable
  70   mortise failed
  75   the lock is held by another owner, or the tick is taken (-E sets another code)
  76   the lock was lost while the command ran, also if the command says 0
  126  the command cannot be executed
  127  the command is not found`,
		Example: `  mortise run nightly-report -- ./report --full
  mortise run --try --every 1h --offset 30m cleanup -- ./cleanup
  mortise run --of 4 transcode -- ffmpeg -i in.mkv out.mp4
  mortise run --shared index -- ./search
  mortise run --exclusive index -- ./rebuild-index`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.mayChange(); err != nil {
				return err
			}
			if at := c.ArgsLenAtDash(); at >= 0 && at != 1 {
				return &coded{codeUsage, errors.New("one NAME, and -- before the command")}
			}
			f.given = c.Flags().Changed
			if err := f.check(); err != nil {
				return &coded{codeUsage, err}
			}
			var err error
			*code, err = run(s, f, args[0], args[1:])
			return err
		},
	}
	c.Flags().SetInterspersed(true)
	c.Flags().DurationVar(&f.wait, "wait", 0, "wait for the lock for so long at most (default: without bound)")
	c.Flags().BoolVar(&f.try, "try", false, "do not wait")
	c.Flags().BoolVar(&f.fair, "fair", false, "wait in the order of arrival, also among Redisson's clients")
	c.Flags().BoolVar(&f.shared, "shared", false, "hold the lock together with others that share it")
	c.Flags().BoolVar(&f.exclusive, "exclusive", false, "hold the lock alone, where others share it")
	c.Flags().IntVar(&f.of, "of", 0, "take permits of a semaphore with so many; 0: with the number that the store has")
	c.Flags().IntVar(&f.permits, "permits", 1, "take so many permits; with --of")
	c.Flags().BoolVar(&f.fenced, "fenced", false, "draw a fencing token")
	c.Flags().DurationVar(&f.every, "every", 0, "start the command at most once in each interval, in the whole fleet")
	c.Flags().DurationVar(&f.offset, "offset", 0, "move the ticks of --every by so much")
	c.Flags().DurationVar(&f.lease, "lease", 30*time.Second, "the lock expires so long after mortise was last heard of")
	c.Flags().DurationVar(&f.grace, "grace", 5*time.Second, "time between TERM and KILL")
	c.Flags().IntVarP(&f.notAcquiredAs, "conflict-exit-code", "E", codeNotAcquired,
		"exit code if the lock is held by another, or the tick is taken")
	return c
}

// mostPermits is the most that a request may take; the library's bound.
const mostPermits = 128

// check refuses flags that do not go together.
func (f *runFlags) check() error {
	for _, x := range []struct{ a, b, remedy string }{
		{"try", "wait", "--try does not wait at all: leave one out"},
		{"shared", "exclusive", "a command reads or writes: leave one out"},
		{"shared", "fair", "a shared lock has no order of arrival: leave out --fair"},
		{"shared", "fenced", "a shared lock has no token: leave out --fenced"},
		{"exclusive", "fair", "a lock that is shared has no order of arrival: leave out --fair"},
		{"exclusive", "fenced", "a lock that is shared has no token: leave out --fenced"},
		{"exclusive", "of", "all permits are --permits 4 --of 4: leave out --exclusive"},
		{"exclusive", "permits", "all permits are --permits 4 --of 4: leave out --exclusive"},
		{"shared", "of", "permits are shared already: leave out --shared"},
		{"shared", "permits", "permits are shared already: leave out --shared"},
		{"of", "fair", "a semaphore has no order of arrival: leave out --fair"},
		{"of", "fenced", "permits have no token: leave out --fenced"},
	} {
		if f.given(x.a) && f.given(x.b) {
			return fmt.Errorf("--%s and --%s exclude each other; %s", x.a, x.b, x.remedy)
		}
	}
	switch {
	case f.given("wait") && f.wait <= 0:
		return errors.New("--wait is more than zero; --try does not wait, and without both the wait has no bound")
	case f.given("permits") && !f.given("of"):
		return errors.New("--permits needs the number of all: --permits 1 --of 4; --of 0 if the store has the number")
	case f.given("of") && (f.of < 0 || f.permits < 1 || f.permits > mostPermits):
		return fmt.Errorf("--of is not negative, and --permits between 1 and %d", mostPermits)
	case f.of > 0 && f.permits > f.of:
		return fmt.Errorf("--permits %d are more than there are; raise --of %d", f.permits, f.of)
	case f.given("offset") && !f.given("every"):
		return errors.New("--offset moves the ticks of --every: give --every 1h")
	case f.given("every") && f.every <= 0:
		return errors.New("--every is more than zero: --every 1h")
	}
	return nil
}

// run holds the lock while the command runs, and returns the exit code.
func run(s *settings, f *runFlags, name string, command []string) (int, error) {
	path, err := exec.LookPath(command[0])
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return codeNotFound, fmt.Errorf("%s: not found", command[0])
	case err != nil:
		return codeNotExec, err
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGWINCH, unix.SIGCONT, unix.SIGTSTP)
	defer signal.Stop(signals)

	a := &acquirer{flags: f, name: name}
	if err := a.open(s); err != nil {
		return 0, err
	}
	defer a.locks.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g, ended, err := a.await(ctx, signals)
	switch {
	case ended != 0:
		return 128 + int(ended), nil
	case errors.Is(err, mortise.ErrWrongKind):
		return codeUsage, fmt.Errorf("%w; take a name always by --shared and --exclusive, by --of, or by none of them", err)
	case errors.Is(err, mortise.ErrNotAcquired):
		return 0, &coded{f.notAcquiredAs, err}
	case err != nil:
		return codeOf(err), err
	}
	h := &held{grant: g, flags: f, signals: signals}
	return h.run(path, command)
}
