package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/cmd/mortise/internal/group"
)

// held is what a command runs under, and how.
type held struct {
	*grant
	flags   *runFlags
	signals <-chan os.Signal
}

func (h *held) run(path string, command []string) (int, error) {
	defer h.release(context.Background())
	until, err := h.extend(h.held.Context(), h.flags.lease)
	switch err = errors.Join(h.held.Err(), err); {
	case errors.Is(err, mortise.ErrLost), errors.Is(err, errNotHeld):
		return codeLost, fmt.Errorf("%s: the lock was lost before the command began: %w", h.held.Name(), err)
	case err != nil:
		return codeUnavailable, fmt.Errorf("%s: the command was not started: %w", h.held.Name(), err)
	}
	late := fmt.Errorf("%s: the lease of %v ended before the command began: the machine is too busy for it; "+
		"give --lease a longer one", h.held.Name(), h.flags.lease)
	if until.Left() <= 0 {
		return codeLost, late
	}
	child, err := group.Start(path, command, h.environment(), until)
	switch {
	case err != nil && until.Left() <= 0: // the guardian has kept the deadline
		return codeLost, late
	case err != nil:
		return codeInternal, err
	}
	defer child.Release()
	return h.watch(child, until)
}

// environment is the command's.
func (h *held) environment() []string {
	env := append(os.Environ(), "MORTISE_LOCK="+h.held.Name(), "MORTISE_OWNER="+h.owner)
	if h.flags.fenced {
		env = append(env, "MORTISE_TOKEN="+strconv.FormatInt(h.token, 10))
	}
	if h.flags.every > 0 {
		env = append(env, "MORTISE_TICK="+timeOf(h.tick))
	}
	return env
}

// watch passes on signals and deadlines until the command has ended.
func (h *held) watch(child *group.Child, until group.Instant) (int, error) {
	looks := make(chan group.Instant)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go h.follow(ctx, looks)
	warn := time.NewTimer(max(0, until.Left()-h.flags.grace))
	defer warn.Stop()
	lost := h.held.Context().Done()
	var failed error
	for {
		select {
		case i, ok := <-looks:
			if !ok { // another may have it now
				looks = nil
				child.Signal(unix.SIGKILL)
				continue
			}
			until = i
			child.Until(until)
			warn.Reset(max(0, until.Left()-h.flags.grace))
		case <-warn.C: // renewals fail
			child.Signal(unix.SIGTERM)
			child.Signal(unix.SIGCONT)
		case <-lost:
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

// follow sends each new deadline, and closes the channel when the store no longer has the grant. It asks several times
// in a lease.
func (h *held) follow(ctx context.Context, looks chan<- group.Instant) {
	tick := time.NewTicker(max(h.flags.lease/10, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		until, err := h.extend(ctx, h.flags.lease)
		switch {
		case errors.Is(err, errNotHeld):
			close(looks)
			return
		case err != nil:
			continue
		}
		select {
		case looks <- until:
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
	err := h.release(context.Background())
	switch {
	case failed != nil:
		return codeInternal, failed
	case errors.Is(err, mortise.ErrLost), killed:
		return codeLost, fmt.Errorf("%s: the lock was lost while the command ran", h.held.Name())
	case err != nil: // the lock stays until its lease ends
		fmt.Fprintln(os.Stderr, "mortise:", err)
	}
	return code, nil
}
