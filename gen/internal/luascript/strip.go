package luascript

import (
	"regexp"
	"strings"
)

// Long brackets are those with up to two equals signs; no script has more.
const (
	long    = `\[\[.*?\]\]|\[=\[.*?\]=\]|\[==\[.*?\]==\]`
	literal = `"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|` + long
	comment = `--(?:` + long + `|[^\n]*)`
)

var (
	literalOrGap  = regexp.MustCompile(`(?s)` + literal + `|(?:[\s\v]|` + comment + `)+`)
	literalOrWord = regexp.MustCompile(`(?s)` + literal + `|` + comment + `|\w+`)
)

// strip drops comments, blank lines, indentation and trailing blanks. A line's end stays one: Lua 5.1 reads "f\n(x)"
// otherwise than "f (x)".
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

// fill puts values for the words of a source that are parameters.
func fill(src string, values map[string]string) string {
	return literalOrWord.ReplaceAllStringFunc(src, func(s string) string {
		if value, is := values[s]; is {
			return value
		}
		return s
	})
}
