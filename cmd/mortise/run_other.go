//go:build !linux

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func hidden([]string) (int, bool) { return 0, false }

func runCommand(*settings, *int) *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run a command while holding a lock (on Linux only)",
		RunE: func(*cobra.Command, []string) error {
			return &coded{codeUsage, errors.New("run needs Linux: elsewhere nothing keeps the command from outliving the lock")}
		},
	}
}
