package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mortise-go/mortise"
)

func inspectCommand(s *settings, code *int) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:               "inspect NAME",
		Short:             "Show who holds a lock; exit code 0 held, 1 free, 69 the store is unavailable",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completesNames(s),
		RunE: func(c *cobra.Command, args []string) error {
			w, err := writerOf(format, c.OutOrStdout(), s.inForce)
			if err != nil {
				return err
			}
			return withClient(s, func(ctx context.Context, locks *mortise.Client) error {
				info, err := locks.Inspect(ctx, args[0])
				if err != nil {
					return err
				}
				if !info.Held {
					*code = codeNone
				}
				if format == "table" {
					fmt.Fprintln(c.OutOrStdout(), s.inForce())
					return show(c.OutOrStdout(), info)
				}
				if err := w.write(info); err != nil {
					return err
				}
				return w.flush()
			})
		},
	}
	formatFlag(c, &format)
	return c
}

// show writes what a store knows about a name, a line for each thing.
func show(w io.Writer, info mortise.LockInfo) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	row := func(name string, value any, known bool) {
		if known {
			fmt.Fprintf(t, "%s\t%v\n", name, value)
		}
	}
	row("name", printable(info.Name), true)
	row("kind", info.Kind, info.Kind != "")
	row("held", "no", !info.Held)
	row("owner", printable(info.Owner), info.Held)
	row("host", printable(info.Host), info.Host != "")
	row("pid", info.PID, info.PID != 0)
	row("since", info.Since.Format(time.RFC3339), !info.Since.IsZero())
	row("left", left(info), info.Held)
	row("holds", info.Holds, info.Held || info.Kind == "count")
	row("readers", info.Readers, info.Readers > 0)
	row("token", info.Token, info.Token > 0)
	row("waiters", info.Waiters, true)
	for _, w := range info.Queue {
		row("waits", waiterName(w), true)
	}
	return t.Flush()
}
