package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/cmd/mortise/internal/group"
)

// runFlags are the flags of run.
type runFlags struct {
	wait          time.Duration
	try, fair     bool
	fenced        bool
	lease, grace  time.Duration
	notAcquiredAs int
}

func runCommand(s *settings, code *int) *cobra.Command {
	f := new(runFlags)
	c := &cobra.Command{
		Use:   "run NAME [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lock",
		Long: `Run a command while holding a lock. There is no shell in between. The command runs in a process group of its
own, which gets all signals that mortise gets. If the lock is lost, or its store is away for so long that it may be, the
group gets TERM, and KILL before the lock can be another's. So it does if mortise itself is killed or stopped. What
leaves the group, by setsid or as a daemon, is out of reach. The command finds MORTISE_LOCK, MORTISE_OWNER and, with
--fenced, MORTISE_TOKEN in its environment.

When the command ends, what is left of its group gets TERM, and KILL after the grace; then the lock is released.

Exit codes:
  the command's own; 128 + n if signal n ended it
  64   wrong usage
  69   the store is unavailable
  70   mortise failed
  75   the lock is held by another owner (-E sets another code)
  76   the lock was lost while the command ran, also if the command says 0
  126  the command cannot be executed
  127  the command is not found`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if s.readOnly {
				return errReadOnly
			}
			if at := c.ArgsLenAtDash(); at >= 0 && at != 1 {
				return &coded{codeUsage, errors.New("one NAME, and -- before the command")}
			}
			if f.try && c.Flags().Changed("wait") {
				return &coded{codeUsage, errors.New("--try and --wait exclude each other")}
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
	c.Flags().BoolVar(&f.fenced, "fenced", false, "draw a fencing token")
	c.Flags().DurationVar(&f.lease, "lease", 30*time.Second, "the lock expires so long after mortise was last heard of")
	c.Flags().DurationVar(&f.grace, "grace", 5*time.Second, "time between TERM and KILL")
	c.Flags().IntVarP(&f.notAcquiredAs, "conflict-exit-code", "E", codeNotAcquired,
		"exit code if the lock is held by another")
	return c
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

	locks, err := s.client(mortise.WithWatchdogTimeout(f.lease))
	if err != nil {
		return 0, err
	}
	defer locks.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lease, ended, err := acquire(ctx, locks, f, name, signals)
	switch {
	case ended != 0:
		return 128 + int(ended), nil
	case errors.Is(err, mortise.ErrNotAcquired):
		return f.notAcquiredAs, err
	case err != nil:
		return codeOf(err), err
	}
	h := &held{locks: locks, lease: lease, name: name, flags: f, signals: signals}
	return h.run(path, command)
}

// acquire acquires the lock. A signal that ends a program ends the wait, too, and is returned.
func acquire(
	ctx context.Context, locks *mortise.Client, f *runFlags, name string, signals <-chan os.Signal,
) (lease *mortise.Lease, ended unix.Signal, err error) {
	var opts []mortise.Option
	if f.fair {
		opts = append(opts, mortise.Fair())
	}
	if f.fenced {
		opts = append(opts, mortise.Fenced())
	}
	if f.wait > 0 {
		opts = append(opts, mortise.WithWait(f.wait))
	}
	waits, stop := context.WithCancel(ctx) // it is the lease's, too, and ends with ctx
	context.AfterFunc(ctx, stop)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if f.try {
			lease, err = locks.TryLock(waits, name, opts...)
		} else {
			lease, err = locks.Lock(waits, name, opts...)
		}
	}()
	for {
		select {
		case <-done:
			if ended != 0 && lease != nil {
				lease.Unlock(context.Background())
			}
			return lease, ended, err
		case s := <-signals:
			switch s {
			case unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT:
				ended = s.(unix.Signal)
				stop()
			}
		}
	}
}

// held is the lock that a command runs under.
type held struct {
	locks   *mortise.Client
	lease   *mortise.Lease
	name    string
	flags   *runFlags
	signals <-chan os.Signal

	until group.Instant // before the lock can be another's
}

// margin is how long before the end of the lease the group is killed: the guardian may get the processor late, and two
// clocks may differ in their rate.
func margin(left time.Duration) time.Duration {
	return min(max(left/10, 50*time.Millisecond), 2*time.Second)
}

// look asks the store how long the lock is this program's, counted from before the question.
func (h *held) look(ctx context.Context) (mortise.LockInfo, error) {
	asked := group.Now()
	info, err := h.locks.Inspect(ctx, h.name)
	if err == nil && info.Mine && info.Remaining > 0 {
		h.until = max(h.until, asked.Add(info.Remaining-margin(info.Remaining)))
	}
	return info, err
}

func (h *held) run(path string, command []string) (int, error) {
	ctx := h.lease.Context()
	defer h.lease.Unlock(context.Background())
	info, err := h.look(ctx)
	if err != nil || !info.Mine {
		return codeLost, fmt.Errorf("%s: the lock was lost before the command began: %w", h.name,
			errors.Join(err, h.lease.Err()))
	}
	env := append(os.Environ(), "MORTISE_LOCK="+h.lease.Name(), "MORTISE_OWNER="+info.Owner)
	if h.flags.fenced {
		env = append(env, "MORTISE_TOKEN="+strconv.FormatInt(h.lease.Token(), 10))
	}
	child, err := group.Start(path, command, env, h.until)
	if err != nil {
		return codeInternal, err
	}
	defer child.Release()
	return h.watch(child)
}

// watch passes on signals and deadlines until the command has ended.
func (h *held) watch(child *group.Child) (int, error) {
	looks := make(chan group.Instant)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	until := h.until
	go h.follow(ctx, looks)
	warn := time.NewTimer(max(0, until.Left()-h.flags.grace))
	defer warn.Stop()
	lost := h.lease.Context().Done()
	var failed error
	for {
		select {
		case until = <-looks:
			child.Until(until)
			warn.Reset(max(0, until.Left()-h.flags.grace))
		case <-warn.C: // renewals fail
			child.Signal(unix.SIGTERM)
			child.Signal(unix.SIGCONT)
		case <-lost: // another may have it now
			lost = nil
			child.Signal(unix.SIGKILL)
		case <-child.Alone:
			if failed == nil {
				failed = errors.New("the guardian has ended: the command was killed")
				child.Signal(unix.SIGKILL)
			}
			child.Alone = nil
		case s := <-h.signals:
			if s == unix.SIGCONT {
				child.Resume()
			} else {
				child.Signal(s.(unix.Signal))
			}
		case state := <-child.States:
			if state == group.Stopped {
				child.Suspend()
				continue
			}
			return h.ended(child, until, failed)
		}
	}
}

// follow sends each new deadline. It asks several times in a lease, which the client renews each third of it.
func (h *held) follow(ctx context.Context, looks chan<- group.Instant) {
	tick := time.NewTicker(h.flags.lease / 10)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		before := h.until
		if _, err := h.look(ctx); err != nil || h.until == before {
			continue
		}
		select {
		case looks <- h.until:
		case <-ctx.Done():
			return
		}
	}
}

// ended ends what is left of the group, and returns the exit code.
func (h *held) ended(child *group.Child, until group.Instant, failed error) (int, error) {
	code := child.End(min(h.flags.grace, max(0, until.Left())))
	killed := false
	select {
	case <-child.Killed:
		killed = true
	default:
	}
	err := h.lease.Unlock(context.Background())
	switch {
	case failed != nil:
		return codeInternal, failed
	case errors.Is(err, mortise.ErrLost), killed:
		return codeLost, fmt.Errorf("%s: the lock was lost while the command ran", h.name)
	case err != nil: // the lock stays until its lease ends
		fmt.Fprintln(os.Stderr, "mortise:", err)
	}
	return code, nil
}
