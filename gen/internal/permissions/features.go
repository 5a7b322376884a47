// Package permissions writes what a Redis user must be permitted: a Go table, and the table of a page. It takes
// commands, keys and channels from the scripts, and the rest from a file of features.
//
// The file says which feature sends which scripts, and which commands the adapters send besides:
//
//	feature NAME: TITLE    begins a feature; TITLE is the first cell of its row
//	besides NAME           a user of it is permitted another feature, too: the row has only the rest
//	scripts NAME...        the scripts that it sends
//	must COMMAND...        commands that the adapters send, and without which the feature fails
//	may COMMAND...         commands that the adapters send, and whose refusal they outlive
//	never COMMAND...       commands that its scripts need for other features only
//
// Empty lines, and lines that begin with #, say nothing.
package permissions

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/mortise-go/mortise/gen/internal/luascript"
	"github.com/mortise-go/mortise/gen/internal/mistake"
)

// Feature is one feature of the file.
type Feature struct {
	Name, Title string
	Besides     string
	Scripts     []string
	luascript.Needs

	never []string
}

// Sharded are the commands that take the place of others where pub/sub is sharded: the row of clusters has them.
var Sharded = []string{"spublish", "pubsub|shardnumsub"}

// Load reads a file of features, and adds what their scripts need. Each script is of a feature, and has the form of
// each of its keys.
func Load(file string, all []*luascript.Script) ([]*Feature, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	l := &loader{file: mistake.Path(file), scripts: map[string]*luascript.Script{}, used: map[string]bool{}}
	for _, s := range all {
		l.scripts[s.Name] = s
		for _, k := range s.Keys {
			if len(k.Forms) == 0 {
				l.mistakes.Addf(s.File, k.Line, "end the line with its form, such as NAME or mortise:1:tick:{NAME}",
					"the key %s does not say how it is made of a lock's name", k.Name)
			}
		}
	}
	for i, line := range strings.Split(string(src), "\n") {
		l.parse(i+1, line)
	}
	for _, s := range all {
		if !l.used[s.Name] {
			l.mistakes.Addf(l.file, 0, "add it to the scripts of a feature", "no feature sends the script %s", s.Name)
		}
	}
	for _, f := range l.features {
		l.complete(f)
	}
	return l.features, l.mistakes.Err()
}

type loader struct {
	file     string
	scripts  map[string]*luascript.Script
	used     map[string]bool
	features []*Feature
	mistakes mistake.List
}

func (l *loader) parse(n int, line string) {
	bad := func(remedy, what string, args ...any) { l.mistakes.Addf(l.file, n, remedy, what, args...) }
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	rest = strings.TrimSpace(rest)
	if word == "" || strings.HasPrefix(word, "#") {
		return
	}
	if word == "feature" {
		name, title, ok := strings.Cut(rest, ": ")
		if !ok {
			bad(`write "feature NAME: TITLE"`, "the feature has no title")
		}
		if l.find(name) != nil {
			bad("choose another", "a second feature is called %s", name)
		}
		l.features = append(l.features, &Feature{Name: name, Title: title})
		return
	}
	if len(l.features) == 0 {
		bad(`begin with "feature NAME: TITLE"`, "the line belongs to no feature")
		return
	}
	f, words := l.features[len(l.features)-1], strings.Fields(rest)
	switch word {
	case "besides":
		if f.Besides = rest; l.find(rest) == nil || rest == f.Name {
			bad("name one of those above", "there is no feature %q above", rest)
		}
	case "scripts":
		for _, name := range words {
			if l.used[name] = true; l.scripts[name] == nil {
				bad("name the file without .lua", "there is no script %s", name)
			}
		}
		f.Scripts = append(f.Scripts, words...)
	case "must":
		f.Must = append(f.Must, words...)
	case "may":
		f.May = append(f.May, words...)
	case "never":
		f.never = append(f.never, words...)
	default:
		bad("write feature, besides, scripts, must, may or never", "a line begins with %q, which is not known", word)
	}
}

func (l *loader) find(name string) *Feature {
	for _, f := range l.features {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// complete adds what the scripts of a feature need, and removes what a feature that it stands besides has.
func (l *loader) complete(f *Feature) {
	for _, name := range f.Scripts {
		s := l.scripts[name]
		if s == nil {
			continue
		}
		n := s.Needs()
		f.Must, f.May = append(f.Must, n.Must...), append(f.May, n.May...)
		f.Keys, f.MayKeys = append(f.Keys, n.Keys...), append(f.MayKeys, n.MayKeys...)
		f.Channels = append(f.Channels, n.Channels...)
	}
	var other Feature
	if b := l.find(f.Besides); b != nil {
		other = *b
	}
	if len(f.Scripts) > 0 {
		f.Must, f.May = without(f.Must, Sharded), without(f.May, Sharded)
	}
	f.Must = without(f.Must, slices.Concat(other.Must, f.never))
	f.May = without(f.May, slices.Concat(f.Must, other.Must, other.May))
	f.Keys = without(f.Keys, other.Keys)
	f.MayKeys = without(f.MayKeys, slices.Concat(f.Keys, other.Keys, other.MayKeys))
	f.Channels = without(f.Channels, other.Channels)
}

// without returns the words that are not among others, sorted and each once.
func without(words, others []string) []string {
	set := map[string]bool{}
	for _, w := range words {
		if !slices.Contains(others, w) {
			set[w] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// Union returns the features together.
func Union(features ...*Feature) (all luascript.Needs) {
	for _, f := range features {
		all.Must, all.May = append(all.Must, f.Must...), append(all.May, f.May...)
		all.Keys, all.MayKeys = append(all.Keys, f.Keys...), append(all.MayKeys, f.MayKeys...)
		all.Channels = append(all.Channels, f.Channels...)
	}
	all.Must, all.Keys = without(all.Must, nil), without(all.Keys, nil)
	all.May, all.MayKeys = without(all.May, all.Must), without(all.MayKeys, all.Keys)
	all.Channels = without(all.Channels, nil)
	return all
}

// Rules returns the rules of ACL SETUSER for names that begin with prefix: those without which something fails, and
// those without which only commands are denied.
func Rules(n luascript.Needs, prefix string) (keys, channels, commands, quiet []string) {
	rule := func(sign, pattern string) string {
		return sign + strings.Replace(pattern, luascript.NameInKey, prefix+"*", 1)
	}
	for _, k := range n.Keys {
		keys = append(keys, rule("~", k))
	}
	for _, c := range n.Channels {
		channels = append(channels, rule("&", c))
	}
	for _, c := range n.Must {
		commands = append(commands, "+"+c)
	}
	for _, k := range n.MayKeys {
		quiet = append(quiet, rule("~", k))
	}
	for _, c := range n.May {
		quiet = append(quiet, "+"+c)
	}
	return keys, channels, commands, quiet
}

// text is a Go composite literal of Needs.
func text(n luascript.Needs) string {
	var b strings.Builder
	b.WriteString("{\n")
	for _, list := range []struct {
		name  string
		words []string
	}{{"Must", n.Must}, {"May", n.May}, {"Keys", n.Keys}, {"MayKeys", n.MayKeys}, {"Channels", n.Channels}} {
		if len(list.words) > 0 {
			fmt.Fprintf(&b, "%s: %s,\n", list.name, stringsOf(list.words))
		}
	}
	b.WriteString("}")
	return b.String()
}

// stringsOf returns a Go literal of strings, in lines of some 100 columns.
func stringsOf(words []string) string {
	var b strings.Builder
	b.WriteString("[]string{")
	width := 0
	for i, w := range words {
		if width += len(w) + 4; width > 90 {
			b.WriteString("\n")
			width = len(w) + 4
		}
		fmt.Fprintf(&b, "%q", w)
		if i < len(words)-1 {
			b.WriteString(", ")
		}
	}
	b.WriteString("}")
	return b.String()
}
