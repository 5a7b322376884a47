package deploy_test

import (
	"regexp"
	"testing"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/conformance"
)

// connecting are the tests of the suite that are about connections: they break, and are refused.
var connecting = regexp.MustCompile(`^Rule(08|12|13)_`)

func TestTheSuiteOverAUnixSocket(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s stack) {
		conformance.RunSomeOn(t, []redistest.Option{redistest.WithSocket()}, func(t *testing.T, srv *redistest.Server) backend.Backend {
			return s.open(t, site{socket: srv.Socket()})
		}, connecting.MatchString)
	})
}
