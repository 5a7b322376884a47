package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortise-go/mortise"
)

// answerWithin bounds the commands that look at a store.
const answerWithin = 10 * time.Second

// withClient calls f with a client of the store.
func withClient(s *settings, f func(ctx context.Context, locks *mortise.Client) error) error {
	locks, err := s.client()
	if err != nil {
		return err
	}
	defer locks.Close()
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	return f(ctx, locks)
}

// The exit codes of the commands that look: 0 found.
const (
	codeNone    = 1 // nothing has the name
	codeChanged = 3 // the owner changed
)

func inspectCommand(s *settings, code *int) *cobra.Command {
	return &cobra.Command{
		Use:   "inspect NAME",
		Short: "Show who holds a lock; exit code 0 held, 1 free, 69 the store is unavailable",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return withClient(s, func(ctx context.Context, locks *mortise.Client) error {
				info, err := locks.Inspect(ctx, args[0])
				if err != nil {
					return err
				}
				if !info.Held {
					*code = codeNone
				}
				return show(c, info)
			})
		},
	}
}

// show prints what a store knows about a name.
func show(c *cobra.Command, info mortise.LockInfo) error {
	t := tabwriter.NewWriter(c.OutOrStdout(), 0, 8, 2, ' ', 0)
	row := func(name string, value any, known bool) {
		if known {
			fmt.Fprintf(t, "%s\t%v\n", name, value)
		}
	}
	row("name", info.Name, true)
	row("kind", info.Kind, info.Kind != "")
	row("held", "no", !info.Held)
	row("owner", info.Owner, info.Held)
	row("host", info.Host, info.Host != "")
	row("pid", info.PID, info.PID != 0)
	row("since", info.Since.Format(time.RFC3339), !info.Since.IsZero())
	row("left", left(info), info.Held)
	row("holds", info.Holds, info.Held || info.Kind == "count")
	row("readers", info.Readers, info.Readers > 0)
	row("token", info.Token, info.Token > 0)
	row("waiters", info.Waiters, true)
	for _, w := range info.Queue {
		row("waits", cmp.Or(w.Owner, w.Tag, "a client that the store does not name"), true)
	}
	return t.Flush()
}

// left says how long a lease still is.
func left(info mortise.LockInfo) string {
	if info.Remaining < 0 {
		return "no end"
	}
	return info.Remaining.Round(time.Millisecond).String()
}

func lsCommand(s *settings, code *int) *cobra.Command {
	return &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List the locks that are held; exit code 0 found, 1 none, 69 the store is unavailable",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return withClient(s, func(_ context.Context, locks *mortise.Client) error {
				prefix := strings.Join(args, "")
				t := tabwriter.NewWriter(c.OutOrStdout(), 0, 8, 2, ' ', 0)
				found := 0
				for info, err := range locks.Locks(context.Background(), prefix) { // as long as it takes: page by page
					if err != nil {
						return errors.Join(t.Flush(), err)
					}
					if found++; found == 1 {
						fmt.Fprintln(t, "NAME\tKIND\tHOLDER\tHOST\tPID\tLEFT\tHOLDS\tWAITERS\tTOKEN")
					}
					fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n", info.Name, info.Kind, info.Owner,
						cmp.Or(info.Host, "-"), number(info.PID), left(info), info.Holds, info.Waiters, number(int(info.Token)))
					if found%rows == 0 {
						if err := t.Flush(); err != nil {
							return err
						}
					}
				}
				if found == 0 {
					*code = codeNone
				}
				return t.Flush()
			})
		},
	}
}

// rows is how many rows of a table are laid out together: a list without end needs no memory without end.
const rows = 200

// number is a number that is unknown if it is zero.
func number(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func unlockCommand(s *settings, code *int) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "unlock NAME",
		Short: "Show who holds a lock, ask, and free it if that owner still has it; 0 freed, 1 was free, 3 the owner changed",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return withClient(s, func(_ context.Context, locks *mortise.Client) error {
				ctx := context.Background() // a person is asked in between
				info, err := locks.Inspect(ctx, args[0])
				if err != nil {
					return err
				}
				if err := show(c, info); err != nil {
					return err
				}
				if !info.Held {
					*code = codeNone
					return nil
				}
				if !yes && !asked(c) {
					return &coded{codeUsage, errors.New("nothing was freed")}
				}
				freed, err := locks.ForceUnlock(ctx, args[0], info.Owner)
				if err == nil && !freed {
					*code = codeChanged
					fmt.Fprintln(c.OutOrStdout(), "the owner has changed; nothing was freed")
				} else if err == nil {
					fmt.Fprintln(c.OutOrStdout(), "freed")
				}
				return err
			})
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

// asked asks on the standard input.
func asked(c *cobra.Command) bool {
	fmt.Fprint(c.OutOrStdout(), "Free it? The owner's work may still run. [y/N] ")
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	return strings.EqualFold(strings.TrimSpace(line), "y")
}

func doctorCommand(s *settings, code *int) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check the store: version, role, permissions, channels, eviction, clock",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return withClient(s, func(ctx context.Context, locks *mortise.Client) error {
				findings, err := locks.Check(ctx)
				t := tabwriter.NewWriter(c.OutOrStdout(), 0, 8, 2, ' ', 0)
				for _, f := range findings {
					fmt.Fprintf(t, "%s\t%s\t%s\n", f.State, f.Name, f.Text)
					if f.Remedy != "" {
						fmt.Fprintf(t, "\t\t%s\n", f.Remedy)
					}
				}
				if flushed := t.Flush(); err == nil {
					err = flushed
				}
				if err != nil && len(findings) > 0 {
					*code = codeNone // the findings say it
					return nil
				}
				return err
			})
		},
	}
}
