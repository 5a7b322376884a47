// Package scripts holds the Lua that runs inside Redis, one operation a file.
//
// A script's header (the lines that start with "--!") is the truth about the
// wire: its keys, its arguments and its reply. From it and the body mortise-gen
// writes scripts_gen.go, and each adapter's commands_gen.go; docs/reference/generation.md
// has the grammar.
package scripts

//go:generate go run ../gen/cmd/mortise-gen scripts -o scripts_gen.go

// Script is one script as it is sent to Redis, without comments.
type Script struct {
	Name   string // the file's, without .lua
	Source string
	SHA1   string // of Source, as EVALSHA takes it
}

// Sources are the sources of all scripts.
func Sources() []string {
	sources := make([]string, len(All))
	for i, s := range All {
		sources[i] = s.Source
	}
	return sources
}
