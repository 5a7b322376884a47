package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortise-go/mortise"
)

func watchCommand(s *settings) *cobra.Command {
	var every time.Duration
	var format string
	c := &cobra.Command{
		Use:   "watch [PREFIX]",
		Short: "Write a line when a lock is held, freed, gets another owner, or when its waiters change",
		Long: `Write a line for each lock that is held, and then one each time that a lock is held, freed, gets another owner,
or when its number of waiters changes. The store is asked again and again: what begins and ends between two looks is
not seen. It goes on until it is interrupted; a store that does not answer is asked again.`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completesNames(s),
		RunE: func(c *cobra.Command, args []string) error {
			if err := mayLook(every); err != nil {
				return err
			}
			w := &watcher{out: c.OutOrStdout(), prefix: strings.Join(args, ""), last: map[string]seen{}}
			switch format {
			case "table":
				w.line = textLine
			case "json":
				w.line = jsonLine
			default:
				return &coded{codeUsage, errors.New("-o is table or json")}
			}
			return untilInterrupted(s, func(ctx context.Context, locks *mortise.Client) error {
				if format == "table" {
					fmt.Fprintln(c.OutOrStdout(), s.inForce())
				}
				return w.run(ctx, locks, every)
			})
		},
	}
	everyFlag(c, &every)
	c.Flags().StringVarP(&format, "output", "o", "table", "table or json")
	return c
}

// everyFlag adds --every to a command that looks again and again.
func everyFlag(c *cobra.Command, every *time.Duration) {
	c.Flags().DurationVar(every, "every", time.Second, "time between two looks")
}

// mayLook refuses looks that would keep a store busy.
func mayLook(every time.Duration) error {
	if every < 10*time.Millisecond {
		return &coded{codeUsage, errors.New("--every is 10ms or more")}
	}
	return nil
}

// watcher writes what has changed since its last look.
type watcher struct {
	out    io.Writer
	line   func(w io.Writer, what string, i mortise.LockInfo) error
	prefix string
	last   map[string]seen // by name
	looks  int
}

// seen is what a look showed of a lock.
type seen struct {
	owner   string
	waiters int
	look    int // the number of the look
}

// run looks until ctx ends, or what it writes is read no more. Only the first look must succeed.
func (w *watcher) run(ctx context.Context, locks *mortise.Client, every time.Duration) error {
	away := false
	for {
		failed, err := w.look(ctx, locks)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case failed != nil && (w.looks == 0 || !errors.Is(failed, mortise.ErrUnavailable)):
			return failed
		case failed != nil && !away:
			fmt.Fprintln(os.Stderr, "mortise:", failed)
		case failed == nil && away:
			fmt.Fprintln(os.Stderr, "mortise: the store answers again")
		}
		away = failed != nil
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// look asks the store once. Failed is the store's error; err is that of writing. After a failure, what was not seen is
// not taken for free.
func (w *watcher) look(ctx context.Context, locks *mortise.Client) (failed, err error) {
	n := w.looks + 1
	for i, err := range locks.Locks(ctx, w.prefix) {
		if err != nil {
			return err, nil
		}
		was, there := w.last[i.Name]
		what := ""
		switch {
		case !there:
			what = "held"
		case was.owner != i.Owner:
			what = "owner"
		case was.waiters != i.Waiters:
			what = "waiters"
		}
		w.last[i.Name] = seen{i.Owner, i.Waiters, n}
		if what == "" {
			continue
		}
		if err := w.line(w.out, what, i); err != nil {
			return nil, err
		}
	}
	w.looks = n
	for name, was := range w.last {
		if was.look == n {
			continue
		}
		delete(w.last, name)
		if err := w.line(w.out, "freed", mortise.LockInfo{Name: name}); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func textLine(w io.Writer, what string, i mortise.LockInfo) error {
	line := fmt.Sprintf("%s  %-7s  %s", time.Now().Format(time.TimeOnly), what, printable(i.Name))
	if what != "freed" {
		line += fmt.Sprintf("  %s  left %s  waiters %d", printable(i.Owner), left(i), i.Waiters)
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

func jsonLine(w io.Writer, what string, i mortise.LockInfo) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(struct {
		At   time.Time `json:"at"`
		What string    `json:"what"`
		Lock lock      `json:"lock"`
	}{time.Now().UTC(), what, lockOf(i)})
}
