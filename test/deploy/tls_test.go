package deploy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
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
			"without a certificate":         {site{tls: x.Stranger()}, ""},
			"with one of another authority": {site{tls: redistest.NewTLS(t).Config()}, "unknown authority"},
			"without TLS":                   {site{}, ""},
		} {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				c.at.addrs = []string{srv.TLSAddr()}
				err := client(t, s.open(t, c.at)).Ping(within(t, patience))
				if !unavailable(err) {
					t.Fatal(err)
				}
				if !strings.Contains(err.Error(), c.says) {
					t.Errorf("the error does not say %q: %v", c.says, err)
				}
				var fault *backend.Fault
				if !errors.As(err, &fault) || fault.Remedy == "" {
					t.Errorf("the error has no remedy: %v", err)
				}
			})
		}
	})
}
