package scripts_test

import (
	"testing"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/scripts"
)

func TestRedisLoadsEveryScriptUnderItsSHA(t *testing.T) {
	s := redistest.Start(t)
	for _, script := range scripts.All {
		if sha, err := s.Do("SCRIPT", "LOAD", script.Source); err != nil || sha != script.SHA1 {
			t.Errorf("%s: loaded as %v, %v; want %s", script.Name, sha, err, script.SHA1)
		}
	}
}

func TestSourcesAreThoseOfAll(t *testing.T) {
	sources := scripts.Sources()
	check.FatalIf(t, len(sources) != len(scripts.All), "%d sources of %d scripts", len(sources), len(scripts.All))
	for i, s := range scripts.All {
		check.ErrorIf(t, sources[i] != s.Source || s.Source == "", "source %d is not that of %s", i, s.Name)
	}
}
