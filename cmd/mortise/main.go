// Command mortise locks from a shell: it runs a command while it holds a lock, and shows and frees locks.
//
//	export MORTISE_STORE=redis://localhost:6379
//	mortise run nightly-report -- ./report --full
//
// mortise run --help has its exit codes.
package main

import (
	"cmp"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() { os.Exit(Main(os.Args[1:])) }

// Main runs the program and returns its exit code.
func Main(args []string) int {
	if code, ok := hidden(args); ok {
		return code
	}
	root := &cobra.Command{
		Use:           "mortise",
		Short:         "Locks of a fleet, from a shell",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	settings := new(settings)
	root.PersistentFlags().StringVar(&settings.store, "store", os.Getenv("MORTISE_STORE"),
		"URL of the store: redis://localhost:6379, postgres://..., memory: (default: $MORTISE_STORE)")
	root.PersistentFlags().StringVar(&settings.prefix, "prefix", os.Getenv("MORTISE_PREFIX"),
		"prefix of all names (default: $MORTISE_PREFIX)")
	root.PersistentFlags().BoolVar(&settings.readOnly, "read-only", os.Getenv("MORTISE_READ_ONLY") != "",
		"refuse what changes the store (default: whether $MORTISE_READ_ONLY is set)")
	code := 0
	root.AddCommand(runCommand(settings, &code), lsCommand(settings, &code), watchCommand(settings),
		inspectCommand(settings, &code), unlockCommand(settings, &code), consoleCommand(settings),
		doctorCommand(settings, &code))
	root.SetArgs(args)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "mortise:", err)
		return cmp.Or(code, codeOf(err))
	}
	return code
}

// settings are the flags of all commands.
type settings struct {
	store, prefix string
	readOnly      bool
}
