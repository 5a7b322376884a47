// Mortise-gen writes the Go code that follows from the Redis scripts.
//
//	mortise-gen scripts [-o scripts_gen.go] [folder]
//
// reads every .lua file of a folder (the working one by default), checks each
// header against its body, and writes one Go file with the constants NameSource
// and NameSHA for each script and the variable All. The package declares
// type Script struct{ Name, Source, SHA1 string } itself.
//
//	mortise-gen commands -profile NAME [-o commands_gen.go]
//
// loads the interface redisproto.Commands, checks each method's structs against
// the header of the script that its //mortise:script directive names, and writes
// an unexported type commands that implements the interface for one Redis
// client. The profile is the name of a built-in one, goredis, rueidis or valkey, or the
// path of a template of your own. More flags of commands:
//
//	-interface PATH.NAME  another interface than redisproto.Commands
//	-scripts PATH         the package that holds the scripts and their constants
//
//	mortise-gen adapter -profile NAME [-o adapter_gen.go]
//
// writes the type adapter of a built-in profile: what the client does beside sending scripts.
//
// All take -package NAME, which under go generate is the package that the
// directive stands in. In another module, first make the generator a tool of that module:
//
//	go mod edit -tool github.com/mortise-go/mortise/gen/cmd/mortise-gen && go mod tidy
//
// Its adapter then says:
//
//	//go:generate go tool mortise-gen commands -profile myclient.tmpl
//
// Nothing is written if anything is wrong. Errors name file, line and remedy:
//
//	scripts/acquire.lua:12: ARGV[4] is used but not declared; add a line "--! arg 4 NAME TYPE" to the header
//
// docs/generation.md lists them, the header's grammar and a profile's blocks.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"strings"

	"github.com/mortise-go/mortise/gen/internal/commands"
	"github.com/mortise-go/mortise/gen/internal/constants"
	"github.com/mortise-go/mortise/gen/internal/luascript"
	"github.com/mortise-go/mortise/gen/profiles"
)

const module = "github.com/mortise-go/mortise"

var errUsage = errors.New("usage: mortise-gen scripts|commands|adapter [flags]; see go doc " + module + "/gen/cmd/mortise-gen")

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	flags := flag.NewFlagSet("mortise-gen "+args[0], flag.ExitOnError)
	pkg := flags.String("package", os.Getenv("GOPACKAGE"), "name of the package that is generated")
	switch args[0] {
	case "scripts":
		out := flags.String("o", "scripts_gen.go", "file to write")
		_ = flags.Parse(args[1:])
		dir := "."
		if flags.NArg() > 0 {
			dir = flags.Arg(0)
		}
		all, err := luascript.ParseDir(dir)
		if err != nil {
			return err
		}
		src, err := constants.Render(packageName(*pkg, *out), all)
		if err != nil {
			return err
		}
		return os.WriteFile(*out, src, 0o644)
	case "commands":
		out := flags.String("o", "commands_gen.go", "file to write")
		profile := flags.String("profile", "", "a built-in profile's name, or the path of a template")
		iface := flags.String("interface", module+"/backend/redisproto.Commands", "interface to implement")
		scripts := flags.String("scripts", module+"/scripts", "package that holds the scripts")
		_ = flags.Parse(args[1:])
		if *profile == "" || flags.NArg() > 0 {
			return errUsage
		}
		p, err := commands.LoadProfile(*profile)
		if err != nil {
			return err
		}
		in, err := commands.Load(commands.Options{Interface: *iface, Scripts: *scripts})
		if err != nil {
			return err
		}
		src, err := commands.Render(packageName(*pkg, *out), in, p)
		if err != nil {
			return err
		}
		return os.WriteFile(*out, src, 0o644)
	case "adapter":
		out := flags.String("o", "adapter_gen.go", "file to write")
		profile := flags.String("profile", "", "a built-in profile's name")
		_ = flags.Parse(args[1:])
		src, known := profiles.Adapter(*profile, packageName(*pkg, *out))
		if *profile == "" || flags.NArg() > 0 {
			return errUsage
		}
		if !known {
			return fmt.Errorf("adapter: %s is none of the built-in profiles %s; write the adapter of another client "+
				"by hand, as docs/new-backend.md says", *profile, strings.Join(profiles.Names, ", "))
		}
		src, err := format.Source(src)
		if err != nil {
			return err
		}
		return os.WriteFile(*out, src, 0o644)
	}
	return errUsage
}

// packageName is what go generate says, or else the name of the output's folder.
func packageName(name, out string) string {
	if name != "" {
		return name
	}
	abs, err := filepath.Abs(out)
	if err != nil {
		return "main"
	}
	return filepath.Base(filepath.Dir(abs))
}
