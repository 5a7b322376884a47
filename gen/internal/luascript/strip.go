package luascript

import (
	"regexp"
	"strings"
)

// Long brackets have two equals signs at most here; no script has more.
const (
	long    = `\[\[.*?\]\]|\[=\[.*?\]=\]|\[==\[.*?\]==\]`
	literal = `"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|` + long
	comment = `--(?:` + long + `|[^\n]*)`
)

var (
	literalOrGap  = regexp.MustCompile(`(?s)` + literal + `|(?:[\s\v]|` + comment + `)+`)
	literalOrWord = regexp.MustCompile(`(?s)` + literal + `|` + comment + `|\w+`)
)

// strip removes comments, blank lines, indentation and trailing blanks. It keeps line ends, because Lua 5.1 reads
// "f\n(x)" differently from "f (x)".
func strip(src string) string {
	return strings.TrimSpace(literalOrGap.ReplaceAllStringFunc(src, func(s string) string {
		switch {
		case strings.Contains(`"'[`, s[:1]):
			return s
		case strings.Contains(s, "\n"):
			return "\n"
		}
		return " "
	}))
}

// fill replaces the words of src that are parameters with their values.
func fill(src string, values map[string]string) string {
	return literalOrWord.ReplaceAllStringFunc(src, func(s string) string {
		if value, is := values[s]; is {
			return value
		}
		return s
	})
}
