package mortise

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mortise-go/mortise/backend/memory"
)

// What the log says of a name that another party chose.
func TestALongNameFloodsNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		client := on(t, memory.New(), WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
		lease := need(client.Lock(context.Background(), "line\nfeed"+strings.Repeat("x", 60_000), WithLease(MinLease)))(t)
		<-lease.Context().Done()
		synctest.Wait()
		if out := log.String(); strings.Count(out, "\n") != 1 || !strings.Contains(out, "name=") || len(out) > 1000 {
			t.Errorf("%d bytes, %d lines: %.300s", len(out), strings.Count(out, "\n"), out)
		}
	})
}
