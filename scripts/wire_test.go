package scripts_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/internal/redistest/check"
)

// A key or channel is built from a literal that begins as below, or from a suffix between colons.
var wireName = regexp.MustCompile(`["']((?:mortise:|redisson_)[^"'{]*|:[a-z_]+:[0-9]?)["'{]`)

// TestWirePageNamesEachKey compares the literals of which the scripts and redisproto build keys and channels with
// docs/reference/wire.md.
func TestWirePageNamesEachKey(t *testing.T) {
	page := check.Value(os.ReadFile("../docs/reference/wire.md")).In(t)
	files := append(check.Value(filepath.Glob("*.lua")).In(t), check.Value(filepath.Glob("include/*.lua")).In(t)...)
	code := check.Value(filepath.Glob("../backend/redisproto/*.go")).In(t)
	companion := regexp.MustCompile(`companion\("([a-z]+)"`)
	found := map[string]bool{}
	for _, file := range append(files, code...) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text := check.Value(os.ReadFile(file)).In(t)
		names := []string{}
		for _, m := range wireName.FindAllStringSubmatch(string(text), -1) {
			names = append(names, strings.TrimSuffix(m[1], "1"))
		}
		for _, m := range companion.FindAllStringSubmatch(string(text), -1) {
			names = append(names, "mortise:1:"+m[1]+":")
		}
		for _, name := range names {
			found[name] = true
			check.ErrorIf(t, !strings.Contains(string(page), name), "%s uses %q, which docs/reference/wire.md lacks; add a row",
				file, name)
		}
	}
	check.ErrorIf(t, len(found) < 12, "found %d names only: %v; the search is broken", len(found), found)
}
