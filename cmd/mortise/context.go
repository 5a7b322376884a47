package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// settings are the flags of all commands, and what the environment and the file of contexts add.
type settings struct {
	store, prefix string
	readOnly      bool
	context       string
	resolved      bool
}

// contexts is the file of contexts.
type contexts struct {
	Current  string                  `yaml:"current"` // which is used where nothing names a store
	Contexts map[string]namedContext `yaml:"contexts"`
}

// namedContext is a store with a name.
type namedContext struct {
	Store    string `yaml:"store"`
	Prefix   string `yaml:"prefix"`
	ReadOnly bool   `yaml:"readOnly"`
}

// flags adds the flags of all commands. Their defaults stay out of the help: a URL may have a password.
func (s *settings) flags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&s.store, "store", "",
		"URL of the store: redis://localhost:6379, postgres://..., memory: (default: $MORTISE_STORE)")
	f.StringVar(&s.prefix, "prefix", "", "prefix of all names (default: $MORTISE_PREFIX)")
	f.StringVar(&s.context, "context", "", "take both from the file of contexts (default: $MORTISE_CONTEXT)")
	f.BoolVar(&s.readOnly, "read-only", false,
		"refuse what changes the store (default: whether $MORTISE_READ_ONLY is set)")
	root.RegisterFlagCompletionFunc("context",
		func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			all, _, _ := readContexts()
			return slices.Sorted(maps.Keys(all.Contexts)), cobra.ShellCompDirectiveNoFileComp
		})
}

// resolve completes the flags: flags go before the environment, and the environment before the file's current context.
// A context replaces MORTISE_STORE and MORTISE_PREFIX. Read-only it is if anything says so.
func (s *settings) resolve() error {
	if s.resolved {
		return nil
	}
	store, name := os.Getenv("MORTISE_STORE"), os.Getenv("MORTISE_CONTEXT")
	switch {
	case s.store != "" && s.context != "":
		return &coded{codeUsage, errors.New("--store and --context exclude each other; leave one out")}
	case s.store == "" && s.context == "" && store != "" && name != "":
		return &coded{codeUsage, errors.New("MORTISE_STORE and MORTISE_CONTEXT exclude each other; unset one")}
	case s.store == "" && s.context == "":
		s.store, s.context = store, name
	}
	if s.store == "" {
		if err := s.take(); err != nil {
			return &coded{codeUsage, err}
		}
	} else {
		s.prefix = cmp.Or(s.prefix, os.Getenv("MORTISE_PREFIX"))
	}
	s.readOnly = s.readOnly || os.Getenv("MORTISE_READ_ONLY") != ""
	s.resolved = true
	return nil
}

// take takes the store from the context, or from the current one of the file if none is named.
func (s *settings) take() error {
	all, path, err := readContexts()
	if err != nil {
		return err
	}
	s.context = cmp.Or(s.context, all.Current)
	if s.context == "" {
		return errors.New("which store? set MORTISE_STORE, or --store redis://localhost:6379")
	}
	x, ok := all.Contexts[s.context]
	switch {
	case !ok && len(all.Contexts) == 0:
		return fmt.Errorf("no context %q: %s has none; docs/how-to/command.md has an example", s.context, path)
	case !ok:
		return fmt.Errorf("no context %q in %s; there are %s", s.context, path,
			strings.Join(slices.Sorted(maps.Keys(all.Contexts)), ", "))
	case x.Store == "":
		return fmt.Errorf("context %q in %s has no store", s.context, path)
	}
	s.store, s.prefix, s.readOnly = x.Store, cmp.Or(s.prefix, x.Prefix), s.readOnly || x.ReadOnly
	return nil
}

// mayChange refuses what changes the store, with --read-only.
func (s *settings) mayChange() error {
	if err := s.resolve(); err != nil {
		return err
	}
	if s.readOnly {
		return errReadOnly
	}
	return nil
}

// errReadOnly is the error of a command that would change a store.
var errReadOnly = &coded{codeUsage, errors.New("nothing is changed with --read-only")}

// inForce says which store, and which prefix of names, a table is about.
func (s *settings) inForce() string {
	text := "store " + withoutSecrets(s.store)
	if s.context != "" {
		text = "context " + printable(s.context) + ", " + text
	}
	if s.prefix == "" {
		return text + ", no prefix"
	}
	return text + ", prefix " + printable(s.prefix)
}

// withoutSecrets is the URL of a store without what may be secret: user, password and parameters.
func withoutSecrets(store string) string {
	u, err := url.Parse(store)
	if err != nil {
		scheme, _, _ := strings.Cut(store, ":")
		return printable(scheme) + ":..."
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment = nil, "", false, ""
	return printable(u.String())
}

// readContexts reads the file of contexts; without a file there are none.
func readContexts() (all contexts, path string, err error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return all, "the file of contexts", nil // no home, no contexts
	}
	path = filepath.Join(dir, "mortise", "contexts.yaml")
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return all, path, nil
	case err != nil:
		return all, path, err
	}
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(&all); err != nil && !errors.Is(err, io.EOF) { // an empty file
		return all, path, fmt.Errorf("%s: %w", path, err)
	}
	return all, path, nil
}

func contextsCommand(s *settings, code *int) *cobra.Command {
	return &cobra.Command{
		Use:   "contexts",
		Short: "List the contexts, stores with names; * is in force; exit code 0 found, 1 none",
		Long: `List the contexts of the file mortise/contexts.yaml in the user's configuration directory, $XDG_CONFIG_HOME or
~/.config on Linux. * marks the one that is in force, of --context, MORTISE_CONTEXT or the file's current, unless
--store or MORTISE_STORE names a store.

  current: staging
  contexts:
    staging:
      store: redis://staging.example:6379
      prefix: "shop:"
    production:
      store: rediss://operator:secret@redis.example:6379
      prefix: "shop:"
      readOnly: true

The file may have passwords: let only yourself read it.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, path, err := readContexts()
			if err != nil {
				return &coded{codeUsage, err}
			}
			if len(all.Contexts) == 0 {
				*code = codeNone
				fmt.Fprintln(os.Stderr, "mortise: no contexts in", path)
				return nil
			}
			if err := s.resolve(); err != nil {
				fmt.Fprintln(os.Stderr, "mortise:", err) // none is in force
			}
			t := tabwriter.NewWriter(c.OutOrStdout(), 0, 8, 2, ' ', 0)
			fmt.Fprintln(t, "\tNAME\tSTORE\tPREFIX\tREAD-ONLY")
			for _, name := range slices.Sorted(maps.Keys(all.Contexts)) {
				x, mark := all.Contexts[name], ""
				if name == s.context && s.resolved {
					mark = "*"
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%t\n", mark, printable(name), withoutSecrets(x.Store),
					cmp.Or(printable(x.Prefix), "-"), x.ReadOnly)
			}
			return t.Flush()
		},
	}
}
