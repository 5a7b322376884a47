// Mortise-gen writes the Go code that follows from the Redis scripts.
//
//	mortise-gen scripts [-o scripts_gen.go] [folder]
//
// reads every .lua file of a folder (the working one by default), checks each
// header against its body, and writes one Go file with the constants NameSource
// and NameSHA for each script and the variable All. The package declares
// type Script struct{ Name, Source, SHA1 string } itself.
//
//	mortise-gen structs [-o structs_gen.go] [folder]
//
// writes a struct for the keys of each script, and one for its arguments, as its header declares them. The
// methods of an interface take these structs.
//
//	mortise-gen numbers [-o numbers_gen.go] [folder]
//
// writes the numbers that the folder's constants.lua declares as Go constants.
//
//	mortise-gen sql [-o sql_gen.go] [folder]
//
// writes a constant for each .sql file of a folder, without its comments.
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
//	-sending FILE         a second file in the folder of -o, for the code that methods share: the block commands
//
//	mortise-gen adapter -profile NAME [-o adapter_gen.go]
//
// writes the type adapter of a built-in profile: the client's operations other than scripts.
//
//	mortise-gen permissions [-features features.txt] [-page FILE] [-o permissions_gen.go] [folder]
//
// writes what a Redis user must be permitted, for each script and for each feature of the file of features, and writes
// the blocks of a page anew: see package gen/internal/permissions.
//
//	mortise-gen bounds [-page FILE] [-o bounds_gen.go] [folder]
//
// writes the most that each script does, as its header says, and writes the table of a page anew: see package
// gen/internal/bounds.
//
// All commands take -package NAME. Under go generate the default is the package with the
// directive. In another module, first make the generator a tool of that module:
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
// docs/reference/generation.md lists them, the header's grammar and a profile's blocks.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"strings"

	"github.com/mortise-go/mortise/gen/internal/bounds"
	"github.com/mortise-go/mortise/gen/internal/commands"
	"github.com/mortise-go/mortise/gen/internal/constants"
	"github.com/mortise-go/mortise/gen/internal/luascript"
	"github.com/mortise-go/mortise/gen/internal/permissions"
	"github.com/mortise-go/mortise/gen/profiles"
)

const module = "github.com/mortise-go/mortise"

var errUsage = errors.New("usage: mortise-gen scripts|structs|numbers|sql|commands|adapter|permissions|bounds " +
	"[flags]; see go doc " + module + "/gen/cmd/mortise-gen")

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
	what := args[0]
	flags := flag.NewFlagSet("mortise-gen "+what, flag.ExitOnError)
	pkg := flags.String("package", os.Getenv("GOPACKAGE"), "name of the package that is generated")
	out := flags.String("o", what+"_gen.go", "file to write")
	profile := flags.String("profile", "", "a built-in profile's name; of commands also the path of a template")
	iface := flags.String("interface", module+"/backend/redisproto.Commands", "interface that commands implements")
	scripts := flags.String("scripts", module+"/scripts", "package that holds the scripts of commands")
	sending := flags.String("sending", "", "file to write of commands, beside -o, that holds what the methods share")
	features := flags.String("features", "features.txt", "file of features, for permissions")
	page := flags.String("page", "", "page whose blocks permissions or bounds writes anew")
	_ = flags.Parse(args[1:])
	if *pkg == "" { // outside go generate
		abs, err := filepath.Abs(*out)
		if err != nil {
			return err
		}
		*pkg = filepath.Base(filepath.Dir(abs))
	}
	var src, shared []byte
	var err error
	switch {
	case what == "scripts" && flags.NArg() <= 1:
		src, err = renderScripts(constants.Render, *pkg, cmp.Or(flags.Arg(0), "."))
	case what == "structs" && flags.NArg() <= 1:
		src, err = renderScripts(constants.Structs, *pkg, cmp.Or(flags.Arg(0), "."))
	case what == "numbers" && flags.NArg() <= 1:
		src, err = renderNumbers(*pkg, cmp.Or(flags.Arg(0), "."))
	case what == "sql" && flags.NArg() <= 1:
		src, err = constants.SQL(*pkg, cmp.Or(flags.Arg(0), "."))
	case what == "commands" && flags.NArg() == 0 && *profile != "":
		if *sending != "" && !beside(*sending, *out) {
			return fmt.Errorf("-sending %s: not a second file in the folder of -o %s; name one", *sending, *out)
		}
		src, shared, err = renderCommands(*pkg, *profile, *iface, *scripts, *sending != "")
	case what == "adapter" && flags.NArg() == 0 && *profile != "":
		adapter, known := profiles.Adapter(*profile, *pkg)
		if !known {
			return fmt.Errorf("adapter: %s is none of the built-in profiles %s; write the adapter of another client "+
				"by hand, as docs/how-to/new-backend.md says", *profile, strings.Join(profiles.Names, ", "))
		}
		src, err = format.Source(adapter)
	case what == "permissions" && flags.NArg() <= 1:
		src, err = renderPermissions(*pkg, cmp.Or(flags.Arg(0), "."), *features, *page)
	case what == "bounds" && flags.NArg() <= 1:
		src, err = renderBounds(*pkg, cmp.Or(flags.Arg(0), "."), *page)
	default:
		return errUsage
	}
	if err != nil {
		return err
	}
	if shared != nil {
		if err := os.WriteFile(*sending, shared, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(*out, src, 0o644)
}

type renderer = func(pkg string, all []*luascript.Script) ([]byte, error)

func renderScripts(render renderer, pkg, dir string) ([]byte, error) {
	all, err := luascript.ParseDir(dir)
	if err != nil {
		return nil, err
	}
	return render(pkg, all)
}

func renderNumbers(pkg, dir string) ([]byte, error) {
	f, err := luascript.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	return constants.Numbers(pkg, f.Constants)
}

// renderPermissions renders a Go file, and writes the page.
func renderPermissions(pkg, dir, features, page string) ([]byte, error) {
	all, err := luascript.ParseDir(dir)
	if err != nil {
		return nil, err
	}
	list, err := permissions.Load(features, all)
	if err != nil {
		return nil, err
	}
	src, err := permissions.Render(pkg, all, list)
	if err != nil {
		return nil, err
	}
	return src, rewrite(page, func(old []byte) ([]byte, error) { return permissions.Page(old, list) })
}

// renderBounds renders a Go file, and writes the page.
func renderBounds(pkg, dir, page string) ([]byte, error) {
	all, err := luascript.ParseDir(dir)
	if err == nil {
		err = bounds.Check(all)
	}
	if err != nil {
		return nil, err
	}
	src, err := bounds.Render(pkg, all)
	if err != nil {
		return nil, err
	}
	return src, rewrite(page, func(old []byte) ([]byte, error) { return bounds.Page(old, all) })
}

// rewrite writes a page anew, if there is one.
func rewrite(page string, blocks func(old []byte) ([]byte, error)) error {
	if page == "" {
		return nil
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	text, err := blocks(old)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, text, 0o644)
}

// beside reports whether a and b are two files in one folder.
func beside(a, b string) bool {
	return filepath.Dir(a) == filepath.Dir(b) && filepath.Base(a) != filepath.Base(b)
}

// renderCommands renders one file. With split, the code that the methods share goes into shared.
func renderCommands(pkg, profile, iface, scripts string, split bool) (src, shared []byte, err error) {
	p, err := commands.LoadProfile(profile)
	if err != nil {
		return nil, nil, err
	}
	in, err := commands.Load(iface, scripts)
	if err != nil {
		return nil, nil, err
	}
	if split {
		shared, src, err = commands.RenderSplit(pkg, in, p)
		return src, shared, err
	}
	src, err = commands.Render(pkg, in, p)
	return src, nil, err
}
