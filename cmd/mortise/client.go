package main

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortise-go/mortise"
)

// answerWithin bounds the commands that look at a store.
const answerWithin = 10 * time.Second

// The exit codes of the commands that look: 0 found.
const (
	codeNone    = 1 // nothing has the name
	codeChanged = 3 // the owner changed
)

// withClient calls f with a client of the store, and a context for what is to be answered soon.
func withClient(s *settings, f func(ctx context.Context, locks *mortise.Client) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	return s.with(ctx, f)
}

// untilInterrupted calls f with a client of the store, and a context that ends when the program is to end.
func untilInterrupted(s *settings, f func(ctx context.Context, locks *mortise.Client) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return s.with(ctx, f)
}

// with calls f with ctx and a client of the store.
func (s *settings) with(ctx context.Context, f func(ctx context.Context, locks *mortise.Client) error) error {
	locks, err := s.client()
	if err != nil {
		return err
	}
	defer locks.Close()
	return f(ctx, locks)
}

// Completion of names asks for so many locks, and no longer than that.
const (
	completed    = 100
	completesFor = 2 * time.Second
)

// completesNames completes the first argument with the names of locks that are held.
func completesNames(s *settings) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, typed string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		locks, err := s.client()
		if len(args) > 0 || err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer locks.Close()
		ctx, cancel := context.WithTimeout(context.Background(), completesFor)
		defer cancel()
		for info, err := range locks.Locks(ctx, typed) {
			if name := strings.TrimPrefix(info.Name, s.prefix); err == nil && printable(name) == name {
				names = append(names, name)
			}
			if err != nil || len(names) == completed {
				break
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
