// Package luascript reads one Redis script: its declared header, its body, and
// whether the two agree.
//
// The header is the first lines of the file, each of which starts with "--!":
//
//	--! script NAME              the file's name without .lua
//	--! key N NAME TYPE [FORM]   KEYS[N]; TYPE is what the key holds, FORM how it is made of a lock's name, NAME
//	--! key * NAME TYPE [FORM]   KEYS, any number of them, instead of numbered ones
//	--! arg N NAME TYPE          ARGV[N]; TYPE is string, ms, int, bool, or words such as publish|spublish
//	--! arg * NAME TYPE          after the numbered ones, once for each key
//	--! reply TYPE COMMENT       TYPE is int, ints or strings
//	--! needs COMMAND...         commands that the script only sends by redis.pcall, and cannot do without
//	--! bound CALLS calls SIZE KB|MB   the most that the script does, whatever its keys hold
//
// A NAME has ASCII letters, digits and _, a letter first, because it becomes a Go name. The names of two scripts, or of
// two fields of one Go struct, differ in more than case and _.
//
// A line "--! include NAME PARAM=EXPRESSION..." below the header stands for the fragment include/NAME.lua, and a name
// in constants.lua for a number.
package luascript

import (
	"crypto/sha1"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mortise-go/mortise/gen/internal/mistake"
)

// Script is one script whose header and body agree.
type Script struct {
	Name string
	File string // as errors name it
	Line int    // of "--! script"
	Doc  []string
	Keys []Param
	Args []Param

	Needed    []string // the commands of "--! needs"
	NeedsLine int
	Calls     []Call // in the order of the text

	MaxCalls, MaxBytes int // of "--! bound": commands, and bytes of their arguments and replies; 0 where it is not given
	BoundLine          int

	Reply        string // int, ints or strings
	ReplyLine    int
	ReplyComment string

	Source string // the body without comments, blank lines and indentation; in a batch, locals before it
	SHA1   string // of Source, as EVALSHA takes it
}

// Param is one declared key or argument.
type Param struct {
	Name string
	Type string
	Each bool // declared with *: once for each item of a batch
	Line int

	Forms []string // of a key: how it is made of a lock's name; nil if that is not declared
	Words []string // of an argument of type string: the only values; nil for any
}

// locals begins the source of a batch, which reads these names many times: a local is read faster than a global.
const locals = "local redis, KEYS, ARGV = redis, KEYS, ARGV\n"

// Batch reports whether the script takes any number of keys.
func (s *Script) Batch() bool { return len(Each(s.Keys)) > 0 }

// Fixed returns the numbered params.
func Fixed(params []Param) []Param {
	return slices.DeleteFunc(slices.Clone(params), func(p Param) bool { return p.Each })
}

// Each returns the params that are declared with *.
func Each(params []Param) []Param {
	return slices.DeleteFunc(slices.Clone(params), func(p Param) bool { return !p.Each })
}

// Parse reads and checks a script without includes. An error is a [mistake.List].
func Parse(file string, src []byte) (*Script, error) {
	s, mistakes := (&Folder{}).parse(file, src)
	return s, mistakes.Err()
}

// Folder is what a folder of scripts has.
type Folder struct {
	Scripts   []*Script
	Constants []*Constant

	fragments fragments
	constants *constants
}

// parse reads and checks a script. The result is complete only without mistakes.
func (f *Folder) parse(file string, src []byte) (*Script, mistake.List) {
	expanded := f.fragments.expand(file, string(src))
	named := strings.Join(expanded.lines, "\n")
	unnamed, misused := f.constants.check(file, named)
	text := f.constants.fill(named)
	s, mistakes := parseHeader(file, text)
	mistakes = append(mistakes, unnamed...)
	if len(misused) > 0 { // the text is no Lua
		return s, expanded.located(append(mistakes, misused...))
	}
	if i := strings.IndexByte(strings.ReplaceAll(text, "\r\n", "\n\n"), '\r'); i >= 0 {
		// In Lua a lone CR ends a line, and so a comment. Tools that strip comments may not heed that.
		mistakes.Addf(file, 1+strings.Count(text[:i], "\n"), "end lines with LF or CR LF",
			"a CR without an LF ends a line")
	}
	mistakes = append(mistakes, checkBody(s, text, f.constants.remedy())...)
	s.Source = strip(text)
	if s.Batch() {
		s.Source = locals + s.Source
	}
	s.SHA1 = fmt.Sprintf("%x", sha1.Sum([]byte(s.Source)))
	return s, expanded.located(mistakes)
}

// ParseDir returns the scripts of ReadDir.
func ParseDir(dir string) ([]*Script, error) {
	f, err := ReadDir(dir)
	if err != nil {
		return nil, err
	}
	return f.Scripts, nil
}

// ReadDir reads and checks the scripts of a folder: its .lua files in the order of their names, but for the file of
// constants. The fragments are in the folder's folder include.
func ReadDir(dir string) (*Folder, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.lua"))
	if err != nil {
		return nil, err
	}
	fragments, mistakes, err := readFragments(filepath.Join(dir, "include"))
	if err != nil {
		return nil, err
	}
	constants, wrong, err := readConstants(dir)
	if err != nil {
		return nil, err
	}
	f, mistakes := &Folder{fragments: fragments, constants: constants}, append(mistakes, wrong...)
	if constants != nil {
		f.Constants = constants.all
		files = slices.DeleteFunc(files, func(file string) bool { return filepath.Base(file) == constantsFile })
	}
	names := map[string]*Script{}
	if len(files) == 0 {
		mistakes.Addf(mistake.Path(dir), 0, "run the command where the scripts are, or name their folder",
			"there is no .lua file")
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		s, wrong := f.parse(mistake.Path(file), src)
		f.Scripts, mistakes = append(f.Scripts, s), append(mistakes, wrong...)
		if other := names[fold(s.Name)]; other != nil {
			mistakes.Addf(s.File, s.Line, "rename one: both become Go constants",
				"the name %s is that of %s (case and _ aside)", s.Name, other.File)
		}
		names[fold(s.Name)] = s
	}
	if err := slices.Concat(mistakes, fragments.unused(), constants.unused()).Err(); err != nil {
		return nil, err
	}
	return f, nil
}

func baseName(file string) string {
	return strings.TrimSuffix(filepath.Base(file), ".lua")
}
