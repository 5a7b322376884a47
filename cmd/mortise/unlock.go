package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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
			if err := s.mayChange(); err != nil {
				return err
			}
			return withClient(s, func(_ context.Context, locks *mortise.Client) (err error) {
				ctx := context.Background() // a person is asked in between
				fmt.Fprintln(c.OutOrStdout(), s.inForce())
				*code, err = unlock(ctx, locks, args[0], c.OutOrStdout(), func() bool { return yes || asked(c) })
				return err
			})
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

// unlock shows who holds a lock, and frees it if agreed and that owner still has it. It returns the exit code.
func unlock(ctx context.Context, locks *mortise.Client, name string, w io.Writer, agreed func() bool) (int, error) {
	info, err := locks.Inspect(ctx, name)
	if err != nil {
		return 0, err
	}
	if err := show(w, info); err != nil {
		return 0, err
	}
	if !info.Held {
		return codeNone, nil
	}
	if !agreed() {
		return 0, &coded{codeUsage, errors.New("nothing was freed")}
	}
	freed, err := locks.ForceUnlock(ctx, name, info.Owner)
	switch {
	case err != nil:
		return 0, err
	case !freed:
		fmt.Fprintln(w, "the owner has changed; nothing was freed")
		return codeChanged, nil
	}
	fmt.Fprintln(w, "freed")
	return 0, nil
}

// asked asks on the standard input.
func asked(c *cobra.Command) bool {
	fmt.Fprint(c.OutOrStdout(), "Free it? The owner's work may still run. [y/N] ")
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	return strings.EqualFold(strings.TrimSpace(line), "y")
}
