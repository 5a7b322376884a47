package main

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mortise-go/mortise/backend"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, what it was built with, and the stores that it knows",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "mortise %s\n%s, %s/%s\nstores: %s\n", c.Root().Version,
				runtime.Version(), runtime.GOOS, runtime.GOARCH, strings.Join(backend.Schemes(), ", "))
			return err
		},
	}
}
