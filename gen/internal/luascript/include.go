package luascript

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mortise-go/mortise/gen/internal/mistake"
)

// A fragment is Lua code that several scripts share: a file in the folder include beside the scripts.
// Its first line names its parameters, "--! fragment NAME PARAM...", and comment lines may follow.
// The line "--! include NAME PARAM=EXPRESSION..." of a script, or of another fragment, stands for
// the rest of the file. Each word that is a parameter's name is replaced by the parameter's
// expression. An expression has no blanks.
type fragment struct {
	params []string
	lines  []string
	at     place // the place of the first line
	used   bool
}

type fragments map[string]*fragment

// readFragments reads the fragments of a folder. The folder need not exist.
func readFragments(dir string) (fragments, mistake.List, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.lua"))
	if err != nil {
		return nil, nil, err
	}
	all, mistakes := fragments{}, mistake.List(nil)
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		name, path := baseName(file), mistake.Path(file)
		lines := strings.Split(strings.TrimSuffix(string(src), "\n"), "\n")
		params, is := strings.CutPrefix(lines[0]+" ", headerMark+" fragment "+name+" ")
		if !is {
			mistakes.Addf(path, 1, `start it with "--! fragment `+name+` PARAM..."`, "the fragment does not name itself")
			continue
		}
		first := 1 + slices.IndexFunc(lines[1:], func(line string) bool {
			return !strings.HasPrefix(line, "--") || strings.HasPrefix(line, headerMark)
		})
		all[name] = &fragment{params: strings.Fields(params), lines: lines[first:], at: place{path, first + 1}}
	}
	return all, mistakes, nil
}

// unused reports the fragments that no script includes.
func (all fragments) unused() (mistakes mistake.List) {
	for name, f := range all {
		if !f.used {
			mistakes.Addf(f.at.file, 1, "include it, or remove the file", "no script includes the fragment %s", name)
		}
	}
	return mistakes
}

// place is the file and line that a line of an expanded script comes from.
type place struct {
	file string
	line int
}

// expansion is a script with its includes replaced by the fragments.
type expansion struct {
	all      fragments
	inside   []string // the fragments that are being included
	lines    []string
	places   []place
	mistakes mistake.List
}

// expand replaces a script's includes with the fragments.
func (all fragments) expand(file, src string) *expansion {
	x := &expansion{all: all}
	x.add(place{file, 1}, strings.Split(src, "\n"), nil)
	return x
}

// add appends lines, with values for their parameters. The first line comes from at.
func (x *expansion) add(at place, lines []string, values map[string]string) {
	for _, line := range lines {
		if call, is := strings.CutPrefix(strings.TrimSpace(line), headerMark+" include "); is {
			x.include(at, call, values)
		} else {
			x.lines, x.places = append(x.lines, fill(line, values)), append(x.places, at)
		}
		at.line++
	}
}

// include appends a fragment in place of the include line with this call. Outer has the values of the parameters of
// the fragment with the include line.
func (x *expansion) include(at place, call string, outer map[string]string) {
	bad := func(remedy, what string, args ...any) { x.mistakes.Addf(at.file, at.line, remedy, what, args...) }
	name, args, _ := strings.Cut(call, " ")
	f := x.all[name]
	if f == nil {
		known := slices.Sorted(maps.Keys(x.all))
		bad("name one of the folder include: "+strings.Join(known, ", "), "there is no fragment %q", call)
		return
	}
	if f.used = true; slices.Contains(x.inside, name) {
		bad("remove the line", "the fragment %s includes itself", name)
		return
	}
	values, params := map[string]string{}, []string(nil)
	for arg := range strings.FieldsSeq(args) {
		param, value, _ := strings.Cut(arg, "=")
		params, values[param] = append(params, param), fill(value, outer)
	}
	if !slices.Equal(params, f.params) {
		bad("give each of its parameters, in order, as PARAM=EXPRESSION: "+strings.Join(f.params, ", "),
			"the fragment %s takes other parameters", name)
		return
	}
	x.inside = append(x.inside, name)
	x.add(f.at, f.lines, values)
	x.inside = x.inside[:len(x.inside)-1]
}

// located moves mistakes in an expanded script to their lines in the files, and adds the mistakes of the includes.
func (x *expansion) located(mistakes mistake.List) mistake.List {
	for i, m := range mistakes {
		if m.Line > 0 && m.Line <= len(x.places) {
			mistakes[i].File, mistakes[i].Line = x.places[m.Line-1].file, x.places[m.Line-1].line
		}
	}
	return append(mistakes, x.mistakes...)
}
