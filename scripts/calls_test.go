package scripts_test

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/scripts"
)

// header is what the header of a script says that the tests here need.
type header struct {
	keys, args []string // names, and of an argument its type: "keep/ms"
	forms      []string // of the keys
	kinds      []string // their types
}

func headerOf(t *testing.T, script string) (h header) {
	t.Helper()
	text := string(check.Value(os.ReadFile(script + ".lua")).In(t))
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) < 2 || words[0] != "--!":
		case words[1] == "key":
			h.keys = append(h.keys, words[3])
			h.forms = append(h.forms, words[5])
			h.kinds = append(h.kinds, words[4])
		case words[1] == "arg":
			h.args = append(h.args, words[3]+"/"+words[4])
		}
	}
	return h
}

const id = "0123456789abcdef0123456789abcdef"

// usual are values of arguments, by name; by name and type where the name has two.
var usual = map[string]string{"owner": "me", "lease": "60000", "publish": "publish", "keep/ms": "60000",
	"entry": "ptag:1", "ids": id, "count": "1", "wants": "1", "wait": "300000", "absence": "1000", "counts": "1",
	"successor": "next", "under": "me", "holds": "1", "claimant": "c", "claim": "5000", "least": "1",
	"limit": "0", "most": "100", "permits": "1", "interval": "1000", "id": "tick", "missed": "1", "number": "1",
	"token": "1", "text": "hello"}

// evalOf is the EVAL of a script for the lock n, with values such as "keep=1" for its arguments.
func evalOf(t *testing.T, script, values string) []string {
	t.Helper()
	h := headerOf(t, script)
	i := slices.IndexFunc(scripts.All, func(s scripts.Script) bool { return s.Name == script })
	check.FatalIf(t, i < 0, "there is no script %s", script)
	given := map[string]string{}
	for _, v := range strings.Fields(values) {
		name, value, _ := strings.Cut(v, "=")
		given[name] = value
	}
	eval := []string{"EVAL", scripts.All[i].Source, strconv.Itoa(len(h.keys))}
	for _, form := range h.forms {
		form, _, _ = strings.Cut(form, "|")
		eval = append(eval, strings.NewReplacer("NAME", "n", "READER", "me", "ID", "id").Replace(form))
	}
	for _, arg := range h.args {
		name, _, _ := strings.Cut(arg, "/")
		value, is := given[name]
		if !is {
			if value, is = usual[arg]; !is {
				value, is = usual[name]
			}
		}
		if !is {
			value = "0"
		}
		delete(given, name)
		eval = append(eval, value)
	}
	check.FatalIf(t, len(given) > 0, "%s has no such arguments: %v", script, given)
	return eval
}

// everyScript checks that a table has each script.
func everyScript(t *testing.T, listed func(script string) bool) {
	t.Helper()
	for _, s := range scripts.All {
		check.ErrorIf(t, !listed(s.Name), "the table lacks the script %s", s.Name)
	}
}

// statements splits "HSET n me 1; PEXPIRE n 50000" into commands.
func statements(text string) (commands [][]string) {
	for one := range strings.SplitSeq(text, ";") {
		if words := strings.Fields(one); len(words) > 0 {
			commands = append(commands, words)
		}
	}
	return commands
}
