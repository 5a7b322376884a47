package deploy_test

import (
	"context"
	"errors"
	"flag"
	"regexp"
	"strings"
	"testing"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/conformance"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// A client that the server does not know gets nowhere, and is told why.
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
			harness.Beside(t, what, func(t *testing.T) {
				c.at.Addrs = []string{srv.TLSAddr()}
				err := client(t, s.open(t, c.at)).Ping(within(t, patience))
				if !unavailable(err) {
					t.Fatal(err)
				}
				harness.ErrorIf(t, !strings.Contains(err.Error(), c.says), "the error does not say %q: %v", c.says, err)
				var fault *backend.Fault
				harness.ErrorIf(t, !errors.As(err, &fault) || fault.Remedy == "", "the error has no remedy: %v", err)
			})
		}
	})
}

// connecting are the tests of the suite that are about connections: they break, and are refused.
var connecting = regexp.MustCompile(`^Rule(08|12|13)_`)

func TestTheSuiteOverAUnixSocket(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s stack) {
		conformance.RunSomeOn(t, []redistest.Option{redistest.WithSocket()},
			func(t *testing.T, srv *redistest.Server) backend.Backend {
				return s.open(t, site{socket: srv.Socket()})
			}, connecting.MatchString)
	})
}

// old is a server that is too old, a binary: `make servers` names Redis 6.2. Without it, a proxy
// makes another answer HELLO as 6.2 does.
var old = flag.String("deploy.old", "", "the binary of a server that is older than what mortise needs")

// A server that is too old is refused before anything is asked of it, and the error says what to do.
func TestAnOlderServerIsRefused(t *testing.T) {
	t.Parallel()
	addr := olderServer(t)
	each(t, func(t *testing.T, s stack) {
		ctx := within(t, patience)
		locks := harness.Must(mortise.New(s.open(t, server(addr))))(t)
		defer locks.Close()
		_, lock := locks.TryLock(ctx, "orders:1")
		for what, err := range map[string]error{"TryLock": lock, "Ping": locks.Ping(ctx)} {
			harness.ErrorIf(t, err == nil || !strings.Contains(err.Error(), `version "6.2.`) ||
				!strings.Contains(err.Error(), "mortise needs Redis 7.0 or newer, or Valkey: upgrade the server"),
				"%s: %v", what, err)
		}
	})
}

func olderServer(t *testing.T) (addr string) {
	if *old != "" {
		return redistest.Start(t, redistest.WithBinary(*old)).Addr()
	}
	return redistest.Pretend(t, redistest.Start(t), "6.2.14")
}

// A server, or a proxy, that does not know HELLO is asked on.
func TestAServerThatTellsNoVersionIsUsed(t *testing.T) {
	t.Parallel()
	addr := redistest.Pretend(t, redistest.Start(t), "")
	for _, s := range stacks {
		if s.name != "go-redis" {
			continue // the others do not connect to such a server
		}
		harness.Check(t, mortise.Do(within(t, patience), client(t, s.open(t, server(addr))), "orders:1",
			func(context.Context) error { return nil }))
	}
}
