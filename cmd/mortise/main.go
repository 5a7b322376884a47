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
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is that of a package; go install knows another way.
var version string

// versionOf is the version that the program says it has.
func versionOf(built *debug.BuildInfo, ok bool) string {
	if version != "" || !ok {
		return cmp.Or(version, "unknown")
	}
	return built.Main.Version
}

func main() { os.Exit(Main(os.Args[1:])) }

// Main runs the program and returns its exit code.
func Main(args []string) int {
	if code, ok := hidden(args); ok {
		return code
	}
	root := &cobra.Command{
		Use:           "mortise",
		Short:         "Locks of a fleet, from a shell",
		Version:       versionOf(debug.ReadBuildInfo()),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	settings := new(settings)
	settings.flags(root)
	code := 0
	root.AddCommand(runCommand(settings, &code), lsCommand(settings, &code), watchCommand(settings), topCommand(settings),
		inspectCommand(settings, &code), unlockCommand(settings, &code), consoleCommand(settings),
		doctorCommand(settings, &code), benchCommand(settings), migrateCommand(settings),
		contextsCommand(settings, &code), manCommand(), versionCommand())
	root.SetArgs(args)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "mortise:", err)
		return cmp.Or(code, codeOf(err))
	}
	return code
}
