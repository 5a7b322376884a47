package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mortise-go/mortise"
)

func unlockCommand(s *settings, code *int) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "unlock NAME",
		Short: "Show who holds a lock, ask, and free it if that owner still has it; " +
			"0 freed, 1 was free, 3 the owner changed",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completesNames(s),
		RunE: func(c *cobra.Command, args []string) error {
			if s.readOnly {
				return errReadOnly
			}
			return withClient(s, func(_ context.Context, locks *mortise.Client) error {
				ctx := context.Background() // a person is asked in between
				info, err := locks.Inspect(ctx, args[0])
				if err != nil {
					return err
				}
				if err := show(c.OutOrStdout(), info); err != nil {
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

// errReadOnly is the error of a command that would change a store.
var errReadOnly = &coded{codeUsage, errors.New("nothing is changed with --read-only")}

// asked asks on the standard input.
func asked(c *cobra.Command) bool {
	fmt.Fprint(c.OutOrStdout(), "Free it? The owner's work may still run. [y/N] ")
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	return strings.EqualFold(strings.TrimSpace(line), "y")
}
