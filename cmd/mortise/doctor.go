package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mortise-go/mortise"
)

func doctorCommand(s *settings, code *int) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check the store: version, role, permissions, channels, eviction, clock",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return withClient(s, func(ctx context.Context, locks *mortise.Client) error {
				fmt.Fprintln(c.OutOrStdout(), s.inForce())
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
