package httplock_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/middleware/httplock"
)

func bound(d time.Duration) []httplock.Option { return []httplock.Option{httplock.WithRetryAfter(d)} }

// Findings U8: a holder's lease of 30 s, or of a minute, is no reason to stay away for as long.
func TestRetryAfterIsBounded(t *testing.T) {
	for name, x := range map[string]struct {
		lease time.Duration
		opts  []httplock.Option
		want  string
	}{
		"a lease that is renewed":             {0, nil, "3"},
		"a lease that is shorter":             {1500 * time.Millisecond, nil, "2"},
		"an option":                           {0, bound(time.Second), "1"},
		"an option of more than what is left": {0, bound(time.Hour), "30"},
		"an option of a fraction of a second": {0, bound(1500 * time.Millisecond), "2"},
		"a lease of a minute":                 {time.Minute, bound(45 * time.Second), "45"},
	} {
		t.Run(name, func(t *testing.T) {
			c := check.Value(mortise.New(memory.New())).In(t)
			defer c.Close()
			var opts []mortise.Option
			if x.lease > 0 {
				opts = append(opts, mortise.WithLease(x.lease))
			}
			held := check.Value(c.Lock(t.Context(), "jobs:1", opts...)).In(t)
			defer held.Unlock(t.Context())
			key := func(*http.Request) (string, error) { return "jobs:1", nil }
			h := httplock.New(c, key, x.opts...)(http.NotFoundHandler())
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("POST", "/jobs/1", nil))
			check.ErrorIf(t, w.Code != http.StatusLocked || w.Header().Get("Retry-After") != x.want,
				"answered %d with Retry-After %q, want %s", w.Code, w.Header().Get("Retry-After"), x.want)
		})
	}
	defer func() { check.ErrorIf(t, recover() == nil, "WithRetryAfter of less than a second is not refused") }()
	httplock.WithRetryAfter(time.Millisecond)
}
