package luascript

import (
	"slices"
	"strconv"
	"strings"

	"github.com/mortise-go/mortise/gen/internal/mistake"
)

const headerMark = "--!"

var (
	keyTypes   = []string{"hash", "string", "list", "set", "zset", "stream", "channel"}
	argTypes   = []string{"string", "ms", "int", "bool"}
	replyTypes = []string{"int", "ints", "strings"}
)

// header reads the lines that start with "--!".
type header struct {
	*Script
	mistakes mistake.List
	line     int
}

func parseHeader(file, text string) (*Script, mistake.List) {
	h := &header{Script: &Script{File: file}}
	lines := strings.Split(text, "\n")
	n := 0
	for ; n < len(lines) && strings.HasPrefix(lines[n], headerMark); n++ {
		h.line = n + 1
		h.parseLine(strings.Fields(lines[n][len(headerMark):]))
	}
	for i := n; i < len(lines); i++ {
		if strings.HasPrefix(strings.TrimSpace(lines[i]), headerMark) {
			h.mistakes.Addf(file, i+1, "move it up: the header is the file's first lines, with none between them",
				"a header line stands outside the header")
		}
	}
	h.finish()
	for ; n < len(lines) && strings.HasPrefix(lines[n], "--"); n++ {
		h.Doc = append(h.Doc, strings.TrimSpace(strings.TrimLeft(lines[n], "-")))
	}
	for len(h.Doc) > 0 && h.Doc[0] == "" {
		h.Doc = h.Doc[1:]
	}
	return h.Script, h.mistakes
}

func (h *header) bad(remedy, what string, args ...any) {
	h.mistakes.Addf(h.File, h.line, remedy, what, args...)
}

func (h *header) parseLine(words []string) {
	if len(words) == 0 {
		h.bad(`write "--! script", "--! key", "--! arg" or "--! reply"`, "the header line is empty")
		return
	}
	switch words[0] {
	case "script":
		switch {
		case len(words) != 2:
			h.bad(`write "--! script NAME"`, "a script line takes one word")
		case h.Name != "":
			h.bad("remove one", "a second script line; line %d names the script", h.Line)
		case words[1] != baseName(h.File):
			h.bad(`write "--! script `+baseName(h.File)+`" or rename the file`,
				"the script is called %q, its file %q", words[1], baseName(h.File))
		}
		if len(words) > 1 && h.Name == "" {
			h.Name, h.Line = words[1], h.line
		}
	case "key":
		h.Keys = h.param(h.Keys, "key", keyTypes, words)
	case "arg":
		h.Args = h.param(h.Args, "arg", argTypes, words)
	case "reply":
		switch {
		case len(words) < 2 || !slices.Contains(replyTypes, words[1]):
			h.bad(`write "--! reply TYPE COMMENT" with a type of `+strings.Join(replyTypes, ", "),
				"the reply has no known type")
		case h.Reply != "":
			h.bad("remove one", "a second reply line; line %d declares the reply", h.ReplyLine)
		default:
			h.Reply, h.ReplyLine, h.ReplyComment = words[1], h.line, strings.Join(words[2:], " ")
		}
	default:
		h.bad(`write "--! script", "--! key", "--! arg" or "--! reply"`, "a header line says %q, which is not known",
			words[0])
	}
}

// param reads "key N NAME TYPE" or "arg N NAME TYPE".
func (h *header) param(params []Param, kind string, types, words []string) []Param {
	if len(words) != 4 {
		h.bad(`write "--! `+kind+` N NAME TYPE", or * for N where there is one for each item of a batch`,
			"the %s line has %d words after --!, not 4", kind, len(words))
		return params
	}
	p := Param{Name: words[2], Type: words[3], Each: words[1] == "*", Line: h.line}
	if !isName(p.Name) {
		h.bad("use lower case letters, digits and _, and start with a letter", "%q is no name", p.Name)
	}
	if slices.ContainsFunc(slices.Concat(h.Keys, h.Args), func(q Param) bool { return q.Name == p.Name }) {
		h.bad("name each key and argument differently", "the name %q is declared twice", p.Name)
	}
	if !slices.Contains(types, p.Type) {
		h.bad("use one of "+strings.Join(types, ", "), "%q is not a type of %s", p.Type, kind)
	}
	each := len(params) > 0 && params[len(params)-1].Each
	switch {
	case p.Each && kind == "key" && len(params) > 0 && !each, !p.Each && kind == "key" && each:
		h.bad("give each item of the batch its own key, or pass the other as an argument",
			"numbered keys and * are mixed: a batch is split by slot, and no key is in every slot")
	case p.Each:
	case each:
		h.bad("move it above the lines with *", "the numbered arg %s follows those that repeat", words[1])
	case words[1] != strconv.Itoa(len(params)+1):
		h.bad("number the lines 1, 2, 3 in order", "%s %q should be %s %d", kind, words[1], kind, len(params)+1)
	}
	return append(params, p)
}

// finish reports what no single line shows.
func (h *header) finish() {
	h.line = max(h.Line, 1)
	if h.Name == "" {
		h.bad(`start the file with "--! script `+baseName(h.File)+`"`, "the header does not name the script")
		h.Name = baseName(h.File)
	}
	if len(h.Keys) == 0 {
		h.bad(`add a line "--! key 1 NAME TYPE"`,
			"the header declares no key: a cluster would not know where to run the script")
	}
	if h.Reply == "" && !slices.ContainsFunc(h.mistakes,
		func(m mistake.Mistake) bool { return strings.HasPrefix(m.What, "the reply ") }) {
		h.bad(`add a line "--! reply TYPE COMMENT" with a type of `+strings.Join(replyTypes, ", "),
			"the header declares no reply")
	}
	for _, p := range h.Args {
		if p.Each && len(h.Keys) > 0 && !h.Batch() {
			h.line = p.Line
			h.bad(`declare the keys with "--! key * NAME TYPE", or number the argument`,
				"arg * %s repeats for each key, but the keys are numbered", p.Name)
		}
	}
	if h.Batch() && h.Reply != "ints" && h.Reply != "" {
		h.line = h.ReplyLine
		h.bad("reply ints, one for each key", "a script with key * replies %s", h.Reply)
	}
}

func isName(s string) bool {
	for i, r := range s {
		if !(r >= 'a' && r <= 'z' || i > 0 && (r == '_' || r >= '0' && r <= '9')) {
			return false
		}
	}
	return s != ""
}
