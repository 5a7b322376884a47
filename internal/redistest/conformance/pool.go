//go:build unix

package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// RunErrorNamesServer checks that the error about a key with other data names the server. Open returns a backend for a
// client of the server at addr.
func RunErrorNamesServer(t *testing.T, open func(t *testing.T, addr string) backend.Backend) {
	srv := redistest.Start(t)
	srv.Must("SET", "n", "text")
	locks := check.Value(mortise.New(open(t, srv.Addr()))).In(t)
	defer locks.Close()
	_, err := locks.TryLock(t.Context(), "n")
	check.Is(t, "the error", err, mortise.ErrWrongKind)
	check.ErrorIf(t, !strings.Contains(err.Error(), srv.Addr()), "the error is %v", err)
}

// RunLostBehindPool checks what is told of a lease that ends while its renewal waits for a connection of b's pool: no
// command has failed by then. Occupy takes all connections, for longer than the lease. Want is why there is no answer.
func RunLostBehindPool(t *testing.T, b backend.Backend, occupy func(), want string) {
	events := make(chan string, 8)
	locks := check.Value(mortise.New(b, mortise.WithWatchdogTimeout(time.Second),
		mortise.WithObserver(mortise.Observer{
			RenewalFailed: func(e mortise.Event) { events <- "RenewalFailed: " + e.Err.Error() },
			Lost:          func(e mortise.Event) { events <- "Lost: " + e.Err.Error() },
		}))).In(t)
	lease := check.Value(locks.Lock(t.Context(), "n")).In(t)
	occupy()
	<-lease.Context().Done()
	for _, event := range []string{"RenewalFailed: ", "Lost: "} {
		var got string
		select {
		case got = <-events:
		case <-time.After(patience):
		}
		check.ErrorIf(t, !strings.HasPrefix(got, event) || !strings.Contains(got, "no answer to the renewal: "+want),
			"got the event %q, want %s with %q", got, event, want)
	}
	check.Is(t, "the lease", lease.Err(), mortise.ErrLost)
}
