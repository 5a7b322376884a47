package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages into a directory",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return &coded{codeUsage, err}
			}
			root := c.Root()
			root.DisableAutoGenTag = true // it has the day of the build
			for _, c := range append(root.Commands(), root) {
				c.Long = asMarkdown(c.Long)
			}
			header := &doc.GenManHeader{Title: "MORTISE", Section: "1", Source: "mortise"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return &coded{codeUsage, err}
			}
			return nil
		},
	}
}

// asMarkdown is the text of a help, whose lines that begin with two spaces are a block: a page is made from Markdown,
// in which they would be joined.
func asMarkdown(help string) string {
	var b strings.Builder
	block := false
	for line := range strings.Lines(help) {
		if in := strings.HasPrefix(line, "  "); in != block {
			block = in
			b.WriteString("\n")
		}
		if block {
			line = "    " + line
		}
		b.WriteString(line)
	}
	return b.String()
}
