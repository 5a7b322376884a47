package luascript

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/yuin/gopher-lua/parse"

	"github.com/mortise-go/mortise/gen/internal/mistake"
)

// constantsFile is the file of a folder of scripts that declares the numbers of all of them, one a line:
//
//	--! const NAME VALUE UNIT TEXT
//
// A script writes the name where the number is meant, and its source has the number. TEXT completes the sentence
// "NAME is ...". Other lines are comments or empty.
const constantsFile = "constants.lua"

// Units are the units of constants. A count and bytes are integers; number is any other number without a unit.
var Units = []string{"ms", "us", "count", "bytes", "number"}

// Constant is a number with a name.
type Constant struct {
	Name  string
	Value string // as Lua and Go read it
	Unit  string // one of Units
	Text  string
	Line  int

	used bool
}

var (
	constantName = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	integer      = regexp.MustCompile(`^[1-9][0-9]*$`)
	number       = regexp.MustCompile(`^([1-9][0-9]*|0)(\.[0-9]+)?(e[1-9][0-9]*)?$`)
	keywords     = strings.Fields(`and break do else elseif end false for function if in local nil not or repeat return
		then true until while`)
)

// constants are the constants of a folder; nil if the folder declares none. Then a script may have any number.
type constants struct {
	file   string
	all    []*Constant
	byName map[string]*Constant
}

// readConstants reads a folder's file of constants. The file need not exist.
func readConstants(dir string) (*constants, mistake.List, error) {
	src, err := os.ReadFile(filepath.Join(dir, constantsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	c := &constants{file: mistake.Path(filepath.Join(dir, constantsFile)), byName: map[string]*Constant{}}
	var mistakes mistake.List
	for i, line := range strings.Split(string(src), "\n") {
		bad := func(remedy, what string, args ...any) { mistakes.Addf(c.file, i+1, remedy, what, args...) }
		words, is := strings.CutPrefix(strings.TrimSpace(line), headerMark)
		switch f := strings.Fields(words); {
		case is && len(f) >= 5 && f[0] == "const":
			c.add(&Constant{Name: f[1], Value: f[2], Unit: f[3], Text: strings.Join(f[4:], " "), Line: i + 1}, bad)
		case is || line != "" && !strings.HasPrefix(line, "--"):
			bad(`write "--! const NAME VALUE UNIT TEXT", or a comment`, "the line declares no constant")
		}
	}
	return c, mistakes, nil
}

// add adds a constant, and reports what is wrong with it.
func (c *constants) add(k *Constant, bad func(remedy, what string, args ...any)) {
	form, kind := integer, "a whole number above zero"
	if k.Unit == "number" {
		form, kind = number, "a number"
	}
	switch {
	case !constantName.MatchString(k.Name):
		bad("use lower-case letters, digits and _, a letter first", "%q is no name of a constant", k.Name)
	case slices.Contains(keywords, k.Name) || slices.Contains(globals, k.Name):
		bad("choose another", "the name %s has a meaning in Lua", k.Name)
	}
	if !slices.Contains(Units, k.Unit) {
		bad("use one of "+strings.Join(Units, ", "), "%q is not a unit", k.Unit)
	} else if !form.MatchString(k.Value) {
		bad("write "+kind+", as 250", "%q is no value in %s", k.Value, k.Unit)
	}
	for _, other := range c.all {
		if fold(other.Name) == fold(k.Name) {
			bad("choose another", "the name %s is that of line %d (_ aside)", k.Name, other.Line)
		}
	}
	c.all = append(c.all, k)
	c.byName[k.Name] = k
}

// remedy says what to do about a name that a script does not declare.
func (c *constants) remedy() string {
	if c == nil {
		return "declare it with local"
	}
	return "declare it with local, or as a constant in " + c.file
}

// unused reports the constants that no script uses.
func (c *constants) unused() (mistakes mistake.List) {
	if c == nil {
		return nil
	}
	for _, k := range c.all {
		if !k.used {
			mistakes.Addf(c.file, k.Line, "use it, or remove the line", "no script uses the constant %s", k.Name)
		}
	}
	return mistakes
}

// foldable matches literals and comments, and what fill folds: the length of a text, and a number between two texts
// that .. joins, where no operator before them binds more tightly.
var foldable = regexp.MustCompile(`(?s)#'([^'\\\n]*)'|` +
	`((?:[(,={]|\.\.|\b(?:and|or|return))\s*)'([^'\\\n]*)' \.\. ([0-9]{1,14}) \.\. '([^'\\\n]*)'|` +
	literal + `|` + comment)

// fill replaces the names of constants by their values. Then the source costs what a source with bare numbers costs:
// a number between two texts becomes a part of one text, and the length of a text a number.
func (c *constants) fill(text string) string {
	if c == nil {
		return text
	}
	values := map[string]string{}
	for _, k := range c.all {
		values[k.Name] = k.Value
	}
	return foldable.ReplaceAllStringFunc(fill(text, values), func(s string) string {
		switch m := foldable.FindStringSubmatch(s); {
		case s[0] == '#':
			return strconv.Itoa(len(m[1]))
		case m[4] != "":
			return m[2] + "'" + m[3] + m[4] + m[5] + "'"
		}
		return s
	})
}

// check reports the bare numbers of a script, and, as misused, names of constants where no number may stand. A text
// that does not parse is not looked at: checkBody tells what is wrong with it.
func (c *constants) check(file, text string) (unnamed, misused mistake.List) {
	if c == nil {
		return nil, nil
	}
	chunk, err := parse.Parse(strings.NewReader(text), file)
	if err != nil {
		return nil, nil
	}
	n := &numbers{constants: c, file: file}
	n.walk(reflect.ValueOf(chunk))
	return n.unnamed, n.misused
}
