package luascript

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mortise-go/mortise/gen/internal/mistake"
)

// A fragment is Lua that several scripts share: a file of the folder include beside the scripts.
// Its first line names its parameters, "--! fragment NAME PARAM...", and comment lines may follow.
// The line "--! include NAME PARAM=EXPRESSION..." of a script, or of another fragment, stands for
// the rest of the file, with the expression (no blanks in it) for each word that is the parameter's
// name.
type fragment struct {
	file   string
	params []string
	lines  []string
	first  int // the number of the first of lines in file
	used   bool
}

type fragments map[string]*fragment

const (
	fragmentMark = headerMark + " fragment"
	includeMark  = headerMark + " include"
)

// readFragments reads the fragments of a folder, which need not exist.
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
		f := &fragment{file: mistake.Path(file), lines: strings.Split(strings.TrimSuffix(string(src), "\n"), "\n"),
			first: 1}
		words := strings.Fields(strings.TrimPrefix(f.lines[0], fragmentMark))
		if !strings.HasPrefix(f.lines[0], fragmentMark) || len(words) == 0 || words[0] != baseName(file) {
			mistakes.Addf(f.file, 1, `start it with "--! fragment `+baseName(file)+` PARAM..."`,
				"the fragment does not name itself")
			continue
		}
		f.params = words[1:]
		for f.lines = f.lines[1:]; len(f.lines) > 0; f.lines = f.lines[1:] {
			if f.first++; !strings.HasPrefix(f.lines[0], "--") || strings.HasPrefix(f.lines[0], headerMark) {
				break
			}
		}
		all[words[0]] = f
	}
	return all, mistakes, nil
}

// unused reports the fragments that no script includes.
func (all fragments) unused() (mistakes mistake.List) {
	for name, f := range all {
		if !f.used {
			mistakes.Addf(f.file, 1, "include it, or remove the file", "no script includes the fragment %s", name)
		}
	}
	return mistakes
}

// place is where a line of an expanded script was written.
type place struct {
	file string
	line int
}

// expansion is a script, or a fragment of one, with its includes in place.
type expansion struct {
	all      fragments
	inside   []string // the fragments that are being included
	lines    []string
	places   []place
	mistakes mistake.List
}

// add appends lines, the first of which has the number first in file.
func (x *expansion) add(file string, first int, lines []string) {
	for i, line := range lines {
		at := place{file, first + i}
		if rest, is := strings.CutPrefix(strings.TrimSpace(line), includeMark); is {
			x.include(at, strings.Fields(rest))
			continue
		}
		x.lines, x.places = append(x.lines, line), append(x.places, at)
	}
}

// include appends a fragment in place of the line that names it, and its arguments.
func (x *expansion) include(at place, words []string) {
	known := strings.Join(slices.Sorted(maps.Keys(x.all)), ", ")
	if len(words) == 0 || x.all[words[0]] == nil {
		x.mistakes.Addf(at.file, at.line, "name one of the folder include: "+known, "there is no fragment %q",
			strings.Join(words, " "))
		return
	}
	f := x.all[words[0]]
	if f.used = true; slices.Contains(x.inside, words[0]) {
		x.mistakes.Addf(at.file, at.line, "remove the line", "the fragment %s includes itself", words[0])
		return
	}
	values, names := map[string]string{}, []string(nil)
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		names, values[name] = append(names, name), value
	}
	if !slices.Equal(names, f.params) || slices.Contains(slices.Collect(maps.Values(values)), "") {
		x.mistakes.Addf(at.file, at.line, "give each of its parameters, in order, as PARAM=EXPRESSION: "+strings.Join(f.params, ", "),
			"the fragment %s takes other parameters", words[0])
		return
	}
	x.inside = append(x.inside, words[0])
	x.add(f.file, f.first, strings.Split(fill(strings.Join(f.lines, "\n"), values), "\n"))
	x.inside = x.inside[:len(x.inside)-1]
}

// fill puts values for the words of a source that are parameters, and of its include lines.
func fill(src string, values map[string]string) string {
	var b strings.Builder
	for _, p := range split(src) {
		value, is := values[p.text]
		switch rest, include := strings.CutPrefix(p.text, includeMark); {
		case p.kind == word && is:
			b.WriteString(value)
		case p.kind == comment && include:
			words := strings.Fields(rest)
			for i, w := range words {
				if name, expr, given := strings.Cut(w, "="); given {
					words[i] = name + "=" + fill(expr, values)
				}
			}
			b.WriteString(includeMark + " " + strings.Join(words, " "))
		default:
			b.WriteString(p.text)
		}
	}
	return b.String()
}

// expand puts a script's includes in place.
func (all fragments) expand(file, src string) (x *expansion) {
	x = &expansion{all: all}
	x.add(file, 1, strings.Split(src, "\n"))
	return x
}

// located are mistakes about an expanded script, at the lines that their authors wrote.
func (x *expansion) located(mistakes mistake.List) mistake.List {
	for i, m := range mistakes {
		if m.Line > 0 && m.Line <= len(x.places) {
			mistakes[i].File, mistakes[i].Line = x.places[m.Line-1].file, x.places[m.Line-1].line
		}
	}
	return append(mistakes, x.mistakes...)
}
