package luascript

import (
	"regexp"
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

// goName matches names that become Go names when their words begin with capitals.
var goName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)

// header reads the lines that start with "--!".
type header struct {
	*Script
	mistakes mistake.List
	line     int
}

func parseHeader(file, text string) (*Script, mistake.List) {
	h := &header{Script: &Script{File: file, Name: baseName(file)}}
	lines := strings.Split(text, "\n")
	end := 0
	for i, line := range lines {
		words, is := strings.CutPrefix(strings.TrimSpace(line), headerMark)
		switch h.line = i + 1; {
		case is && i == end:
			h.parseLine(strings.Fields(words))
			end++
		case is:
			h.bad("move it up: the header is the file's first lines, with none between them",
				"a header line stands outside the header")
		}
	}
	h.finish()
	for _, line := range lines[end:] {
		if !strings.HasPrefix(line, "--") {
			break
		}
		if line = strings.TrimSpace(strings.TrimLeft(line, "-")); line != "" || len(h.Doc) > 0 {
			h.Doc = append(h.Doc, line)
		}
	}
	return h.Script, h.mistakes
}

func (h *header) bad(remedy, what string, args ...any) {
	h.mistakes.Addf(h.File, h.line, remedy, what, args...)
}

func (h *header) parseLine(words []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	switch kind := words[0]; kind {
	case "script":
		h.Line = h.line
		if name := strings.Join(words[1:], " "); name != h.Name {
			h.bad(`write "--! script `+h.Name+`" or rename the file`, "the script is called %q, its file %q", name, h.Name)
		}
	case "key":
		h.Keys = h.param(h.Keys, kind, keyTypes, words)
	case "arg":
		h.Args = h.param(h.Args, kind, argTypes, words)
	case "reply":
		h.ReplyLine = h.line
		if len(words) < 2 || !slices.Contains(replyTypes, words[1]) {
			h.bad(`write "--! reply TYPE COMMENT" with a type of `+strings.Join(replyTypes, ", "),
				"the reply has no known type")
			return
		}
		h.Reply, h.ReplyComment = words[1], strings.Join(words[2:], " ")
	case "needs":
		if h.NeedsLine, h.Needed = h.line, words[1:]; len(words) == 1 {
			h.bad(`write "--! needs COMMAND...", or remove the line`, "the needs line names no command")
		}
	case "bound":
		h.bound(words)
	default:
		h.bad(`write "--! script", "--! key", "--! arg", "--! reply", "--! needs" or "--! bound"`,
			"a header line says %q, which is not known",
			kind)
	}
}

// bound reads "bound CALLS calls BYTES KB".
func (h *header) bound(words []string) {
	if len(words) == 5 && words[2] == "calls" && (words[4] == "KB" || words[4] == "MB") {
		calls, err := strconv.Atoi(words[1])
		size, err2 := strconv.Atoi(words[3])
		if h.BoundLine == 0 && err == nil && err2 == nil && calls > 0 && size > 0 {
			unit := map[string]int{"KB": 1000, "MB": 1000000}[words[4]]
			h.BoundLine, h.MaxCalls, h.MaxBytes = h.line, calls, size*unit
			return
		}
	}
	h.bad(`write one line such as "--! bound 300 calls 20 KB"; the unit is KB or MB`, "the bound is not one of work")
}

// param reads "key N NAME TYPE [FORM]" or "arg N NAME TYPE".
func (h *header) param(params []Param, kind string, types, words []string) []Param {
	var forms []string
	if len(words) == 5 && kind == "key" {
		forms, words = strings.Split(words[4], "|"), words[:4]
	}
	if len(words) != 4 {
		h.bad(`write "--! `+kind+` N NAME TYPE", or * for N where there is one for each item of a batch`,
			"the %s line has %d words after --!, not 4", kind, len(words))
		return params
	}
	p := Param{Name: words[2], Type: words[3], Each: words[1] == "*", Line: h.line, Forms: forms}
	if kind == "arg" && strings.Contains(p.Type, "|") {
		p.Type, p.Words = "string", strings.Split(p.Type, "|")
	}
	h.checkName(p.Name)
	if slices.Contains(p.Words, "") {
		h.bad("write words such as publish|spublish", "a word of %q is empty", words[3])
	}
	if slices.Contains(forms, "") {
		h.bad("write forms such as NAME or mortise:1:tick:{NAME}", "a form of %q is empty", strings.Join(forms, "|"))
	}
	if !slices.Contains(types, p.Type) {
		h.bad("use one of "+strings.Join(types, ", "), "%q is not a type of %s", p.Type, kind)
	}
	each := len(params) > 0 && params[len(params)-1].Each
	switch {
	case kind == "key" && len(params) > 0 && p.Each != each:
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

func (h *header) checkName(name string) {
	if !goName.MatchString(name) {
		h.bad("use ASCII letters, digits and _, a letter first", "%q makes no Go name", name)
	}
}

// distinct reports params of one name. The params are the fields of one Go struct.
func (h *header) distinct(params []Param) {
	lines := map[string]int{}
	for _, p := range params {
		if line := lines[fold(p.Name)]; line > 0 {
			h.line = p.Line
			h.bad("choose another: both become fields of one Go struct", "the name %s is that of line %d (case and _ aside)",
				p.Name, line)
			continue
		}
		lines[fold(p.Name)] = p.Line
	}
}

// fold returns a name without what may differ between two names that become one in Go.
func fold(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// finish reports faults of the header as a whole.
func (h *header) finish() {
	h.distinct(slices.Concat(h.Keys, Each(h.Args)))
	h.distinct(Fixed(h.Args))
	h.line = max(h.Line, 1)
	h.checkName(h.Name)
	if h.Line == 0 {
		h.bad(`start the file with "--! script `+h.Name+`"`, "the header does not name the script")
	}
	if len(h.Keys) == 0 {
		h.bad(`add a line "--! key 1 NAME TYPE"`,
			"the header declares no key: a cluster would not know where to run the script")
	}
	if h.ReplyLine == 0 {
		h.bad(`add a line "--! reply TYPE COMMENT" with a type of `+strings.Join(replyTypes, ", "),
			"the header declares no reply")
	}
	if h.Batch() {
		if h.line = h.ReplyLine; h.Reply != "ints" && h.Reply != "" {
			h.bad("reply ints, one for each key", "a script with key * replies %s", h.Reply)
		}
		return
	}
	for _, p := range Each(h.Args) {
		h.line = p.Line
		h.bad(`declare the keys with "--! key * NAME TYPE", or number the argument`,
			"arg * %s repeats for each key, but the keys are numbered", p.Name)
	}
}
