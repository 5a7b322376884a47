package luascript

import "strings"

// kind is what a piece of Lua source is, as far as stripping needs to know.
type kind int

const (
	word    kind = iota // a name, a keyword, a number
	mark                // any other single character
	str                 // a string literal, with its quotes or brackets
	comment             // with its dashes, without the line's end
	space               // blanks and tabs
	newline
)

type piece struct {
	kind kind
	text string
	line int
}

// split cuts source into pieces that, joined, are the source again. What is not
// terminated runs to the end: the parser has already complained of it.
func split(src string) []piece {
	var pieces []piece
	line := 1
	for len(src) > 0 {
		p := piece{line: line}
		n := 1
		switch c := src[0]; {
		case c == '\n':
			p.kind = newline
		case isSpace(c):
			p.kind = space
			for n < len(src) && isSpace(src[n]) {
				n++
			}
		case isWord(c):
			p.kind = word
			for n < len(src) && isWord(src[n]) {
				n++
			}
		case c == '"' || c == '\'':
			p.kind = str
			n = quoted(src)
		case strings.HasPrefix(src, "--"):
			p.kind = comment
			if n = bracketed(src[2:]); n > 0 {
				n += 2
			} else if n = strings.IndexByte(src, '\n'); n < 0 {
				n = len(src)
			}
		case c == '[':
			p.kind = mark
			if b := bracketed(src); b > 0 {
				p.kind, n = str, b
			}
		default:
			p.kind = mark
		}
		p.text = src[:n]
		src = src[n:]
		line += strings.Count(p.text, "\n")
		pieces = append(pieces, p)
	}
	return pieces
}

// quoted is the length of the quoted string that src starts with.
func quoted(src string) int {
	for i := 1; i < len(src); i++ {
		switch src[i] {
		case '\\':
			i++
		case src[0]:
			return i + 1
		}
	}
	return len(src)
}

// bracketed is the length of the long bracket, [[...]] or [==[...]==], that src
// starts with; 0 if it starts with none.
func bracketed(src string) int {
	if src == "" || src[0] != '[' {
		return 0
	}
	level := len(src[1:]) - len(strings.TrimLeft(src[1:], "="))
	if !strings.HasPrefix(src[1+level:], "[") {
		return 0
	}
	end := "]" + strings.Repeat("=", level) + "]"
	i := strings.Index(src[level+2:], end)
	if i < 0 {
		return len(src)
	}
	return level + 2 + i + len(end)
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f' }

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// strip drops comments, blank lines, indentation and trailing blanks.
func strip(src string) string {
	var (
		b     strings.Builder
		start = true // nothing of the current line is written yet
		blank = ""   // what stands between the last piece and the next
	)
	for _, p := range split(src) {
		switch p.kind {
		case newline:
			if !start {
				b.WriteByte('\n')
			}
			start, blank = true, ""
		case space:
			blank = " "
		case comment:
			blank = " "
			// Lua 5.1 reads "f\n(x)" otherwise than "f (x)"; keep a line's end.
			if strings.Contains(p.text, "\n") && !start {
				b.WriteByte('\n')
				start = true
			}
		default:
			if !start {
				b.WriteString(blank)
			}
			b.WriteString(p.text)
			start, blank = false, ""
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}
