package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mortise-go/mortise"
)

func lsCommand(s *settings, code *int) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:               "ls [PREFIX]",
		Short:             "List the locks that are held; exit code 0 found, 1 none, 69 the store is unavailable",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completesNames(s),
		RunE: func(c *cobra.Command, args []string) error {
			w, err := writerOf(format, c.OutOrStdout(), s.inForce)
			if err != nil {
				return err
			}
			return withClient(s, func(_ context.Context, locks *mortise.Client) error {
				found := false
				for info, err := range locks.Locks(context.Background(), strings.Join(args, "")) { // page by page
					if err == nil {
						found, err = true, w.write(info)
					}
					if err != nil {
						return errors.Join(w.flush(), err)
					}
				}
				if !found {
					*code = codeNone
				}
				return w.flush()
			})
		},
	}
	formatFlag(c, &format)
	return c
}
