// Package scripts holds the Lua code run inside Redis, one operation a file.
//
// A script's header (the lines with "--!" at the start) is the truth about the wire: keys,
// arguments and reply. mortise-gen writes scripts_gen.go, and each adapter's commands_gen.go and
// sending_gen.go, from header and body; docs/reference/generation.md has the grammar.
package scripts

//go:generate go run ../gen/cmd/mortise-gen scripts -o scripts_gen.go

// Script is a script as sent to Redis, without comments.
type Script struct {
	Name   string // the file's, without .lua
	Source string
	SHA1   string // SHA-1 of Source, for EVALSHA
}

// Sources are the sources of all scripts.
func Sources() []string {
	sources := make([]string, len(All))
	for i, s := range All {
		sources[i] = s.Source
	}
	return sources
}
