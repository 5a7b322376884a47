package deploy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// Who the server does not know gets nowhere, and is told why.
func TestTLSThatCannotWorkSaysSo(t *testing.T) {
	t.Parallel()
	x := redistest.NewTLS(t)
	srv := redistest.Start(t, redistest.WithTLS(x))
	each(t, func(t *testing.T, s stack) {
		for what, c := range map[string]struct {
			at   site
			says string
		}{
			"without a certificate":         {site{Site: harness.Site{TLS: x.Stranger()}}, ""},
			"with one of another authority": {site{Site: harness.Site{TLS: redistest.NewTLS(t).Config()}}, "unknown authority"},
			"without TLS":                   {site{}, ""},
		} {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				c.at.Addrs = []string{srv.TLSAddr()}
				err := client(t, s.open(t, c.at)).Ping(within(t, patience))
				if !unavailable(err) {
					t.Fatal(err)
				}
				harness.ErrorIf(t, !strings.Contains(err.Error(), c.says),
					"the error does not say %q: %v", c.says, err)
				var fault *backend.Fault
				harness.ErrorIf(t, !errors.As(err, &fault) || fault.Remedy == "", "the error has no remedy: %v", err)
			})
		}
	})
}
