//go:build linux

package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// configured writes a file of contexts, and returns the environment with it, without a store, and with env.
func configured(t *testing.T, text string, env ...string) []string {
	t.Helper()
	dir := t.TempDir()
	check.Done(t, os.Mkdir(dir+"/mortise", 0o700))
	check.Done(t, os.WriteFile(dir+"/mortise/contexts.yaml", []byte(text), 0o600))
	return append([]string{"XDG_CONFIG_HOME=" + dir, "MORTISE_STORE=", "MORTISE_PREFIX=", "MORTISE_CONTEXT="}, env...)
}

// output runs the program, and returns what it writes, and its exit code.
func output(t *testing.T, env []string, args ...string) (text, said string, code int) {
	t.Helper()
	p := beginWith(t, "", env, args...)
	all := check.Value(io.ReadAll(p.lines)).In(t)
	<-p.ended
	return string(all), p.said.String(), p.ProcessState.ExitCode()
}

func TestAContextNamesStoreAndPrefix(t *testing.T) {
	check.Long(t)
	server := redistest.Start(t, redistest.WithPassword("secret"))
	address := "redis://:secret@" + server.Addr() + "/0?client_name=secret"
	file := "current: one\ncontexts:\n  one: {store: '" + address + "', prefix: 'one:'}\n" +
		"  two: {store: '" + address + "', prefix: 'two:', readOnly: true}\n"
	server.Must("HSET", "one:a", "x/1/y:1", "1")
	server.Must("HSET", "two:a", "x/1/y:1", "1")
	server.Must("HSET", "a", "x/1/y:1", "1")
	for name, x := range map[string]struct {
		env, args []string
		about     string
		held      string // in -o name
	}{
		"current":                  {nil, nil, "context one, store redis://" + server.Addr() + "/0, prefix one:", "one:a"},
		"a flag":                   {nil, []string{"--context", "two"}, "context two, ", "two:a"},
		"the environment":          {[]string{"MORTISE_CONTEXT=two"}, nil, "context two, ", "two:a"},
		"a flag goes first":        {[]string{"MORTISE_CONTEXT=two"}, []string{"--context", "one"}, "context one, ", "one:a"},
		"a flag before a store":    {[]string{"MORTISE_STORE=memory:"}, []string{"--context", "two"}, "context two", "two:a"},
		"another prefix":           {nil, []string{"--prefix", "two:"}, "prefix two:", "two:a"},
		"a store":                  {[]string{"MORTISE_STORE=" + address}, nil, server.Addr() + "/0, no prefix", "a"},
		"its prefix is not theirs": {[]string{"MORTISE_PREFIX=two:"}, nil, "prefix one:", "one:a"},
	} {
		t.Run(name, func(t *testing.T) {
			env := configured(t, file, x.env...)
			for _, command := range [][]string{{"ls"}, {"ls", "-o", "wide"}, {"inspect", "a"}} {
				text, said, code := output(t, env, append(x.args, command...)...)
				first, rest, _ := strings.Cut(text, "\n")
				check.ErrorIf(t, code != 0 || !strings.Contains(first, x.about) || !strings.Contains(rest, x.held),
					"%v: %d, %q, %s", command, code, text, said)
				check.ErrorIf(t, strings.Contains(text+said, "secret"), "%v has the password: %s%s", command, text, said)
			}
			text, _, _ := output(t, env, append(x.args, "inspect", "a", "-o", "name")...)
			check.Equal(t, "inspect -o name: %q", text, x.held+"\n")
		})
	}
	env := configured(t, file)
	text, _, code := output(t, env, "contexts")
	check.ErrorIf(t, code != 0 || strings.Contains(text, "secret") || !strings.Contains(text, "*  one") ||
		strings.Contains(text, "*  two"), "%d, %s", code, text)
	_, said, code := output(t, env, "--context", "two", "unlock", "--yes", "a")
	check.ErrorIf(t, code != codeUsage, "a read-only context: %d, %s", code, said)
	names, _, _ := output(t, env, "__complete", "--context", "")
	check.ErrorIf(t, !strings.HasPrefix(names, "one\ntwo\n"), "%q", names)
}

func TestAWrongContextIsRefusedWithARemedy(t *testing.T) {
	const file = "contexts:\n  one: {store: 'memory:'}\n  none: {prefix: 'x'}\n"
	for name, x := range map[string]struct {
		env  []string
		args []string
		want string
	}{
		"unknown":         {configured(t, file), []string{"--context", "two", "ls"}, "there are none, one"},
		"without a store": {configured(t, file), []string{"--context", "none", "ls"}, "has no store"},
		"no file":         {configured(t, ""), []string{"--context", "two", "ls"}, "contexts.yaml"},
		"nothing":         {configured(t, file), []string{"ls"}, "set MORTISE_STORE"},
		"two flags":       {configured(t, file), []string{"--context", "one", "--store", "memory:", "ls"}, "leave one out"},
		"two variables": {
			configured(t, file, "MORTISE_STORE=memory:", "MORTISE_CONTEXT=one"), []string{"ls"}, "unset one",
		},
		"an unknown field": {configured(t, "contexts:\n  one: {sotre: 'memory:'}\n"), []string{"ls"}, "sotre"},
		"no YAML":          {configured(t, "]"), []string{"contexts"}, "contexts.yaml"},
	} {
		_, said, code := output(t, x.env, x.args...)
		check.ErrorIf(t, code != codeUsage || !strings.Contains(said, x.want), "%s: %d, %q", name, code, said)
	}
	_, said, code := output(t, configured(t, ""), "contexts")
	check.ErrorIf(t, code != codeNone || !strings.Contains(said, "contexts.yaml"), "%d, %q", code, said)
}

// The help and the tables do not have the password of the store's URL.
func TestPasswordsAreNotShown(t *testing.T) {
	env := []string{"MORTISE_STORE=redis://operator:secret@127.0.0.1:1/0?password=secret"}
	for _, args := range [][]string{{"--help"}, {"ls", "--help"}, {"contexts"}} {
		text, said, _ := output(t, env, args...)
		check.ErrorIf(t, strings.Contains(text+said, "secret"), "%v: %s%s", args, text, said)
	}
	for store, want := range map[string]string{
		"redis://u:p@h:1/0?x=y": "redis://h:1/0", "sqlite:/a/b.db?x=y": "sqlite:/a/b.db", "sqlite:b.db": "sqlite:b.db",
		"memory:": "memory:", "postgres://u:p@a:1,b:2/d": "postgres://a:1,b:2/d",
		"redis://u:p@h:x/": "redis:...", "postgres://u:p@h/d": "postgres://h/d",
	} {
		check.Equal(t, store+" is shown as %q", withoutSecrets(store), want)
	}
}

func TestEachCommandHasAManualPage(t *testing.T) {
	dir := t.TempDir() + "/man1"
	_, said, code := output(t, nil, "man", dir)
	check.ErrorIf(t, code != 0, "exit code %d; %s", code, said)
	for name, want := range map[string]string{
		"mortise": ".SH NAME", "mortise-run": "\n  76   the lock was lost", "mortise-ls": "exit code 0 found",
		"mortise-contexts": "\n      store: redis://", "mortise-unlock": "3 the owner changed",
		"mortise-console": "--anywhere", "mortise-top": "\n  w  most waiters first",
	} {
		page := string(check.Value(os.ReadFile(dir + "/" + name + ".1")).In(t))
		check.ErrorIf(t, !strings.Contains(page, want), "%s: no %q in %s", name, want, page)
	}
	_, said, code = output(t, nil, "man", "/dev/null/x")
	check.ErrorIf(t, code != codeUsage, "exit code %d; %s", code, said)
}
