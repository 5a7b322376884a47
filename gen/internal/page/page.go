// Package page writes the generated blocks of a Markdown page.
package page

import (
	"bytes"
	"fmt"
	"strings"
)

// Write returns a page with its blocks of a mark written anew. A block stands between the lines "<!-- MARK: WHAT -->"
// and "<!-- MARK: end -->". The function block returns the text of the block WHAT.
func Write(page []byte, mark string, block func(what string) (string, error)) ([]byte, error) {
	begin, end := "<!-- "+mark+": ", "<!-- "+mark+": end -->\n"
	var b bytes.Buffer
	rest, blocks := string(page), 0
	for {
		before, after, found := strings.Cut(rest, "\n"+begin)
		if b.WriteString(before); !found {
			break
		}
		what, after, _ := strings.Cut(after, " -->\n")
		_, after, closed := strings.Cut(after, end)
		if !closed {
			return nil, fmt.Errorf("the block %q does not end; add a line %s", begin+what, strings.TrimSpace(end))
		}
		text, err := block(what)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "\n%s%s -->\n%s%s", begin, what, text, strings.TrimSuffix(end, "\n"))
		rest = "\n" + after
		blocks++
	}
	if blocks == 0 {
		return nil, fmt.Errorf("the page has no line %stable -->", begin)
	}
	return b.Bytes(), nil
}
