// Package profiles holds the client profiles that mortise-gen knows by name.
// docs/generation.md tells what a profile consists of.
package profiles

import "embed"

// FS has one NAME.tmpl for each profile.
//
//go:embed *.tmpl
var FS embed.FS
