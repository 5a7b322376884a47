package engine

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"

	"github.com/mortise-go/mortise/internal/announce"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// site is the program counter of a call into this module. It is resolved to a file and a line only when it is logged.
type site uintptr

// WarnsOfHolds reports whether the engine logs holds that last long, with their call sites.
func WarnsOfHolds(e *Engine) bool { return e.Config.HoldWarning > 0 && e.announce.Logs() }

// siteOf returns the program counter of the call into this module, for Acquire and AcquireAll. If the whole stack is
// of this module, that of WithCallSite is returned; 0 if the engine does not log call sites.
func siteOf(ctx context.Context, e *Engine) uintptr {
	if !WarnsOfHolds(e) {
		return 0
	}
	pc := callSite()
	if pc == 0 {
		pc, _ = ctx.Value(siteKey{}).(uintptr)
	}
	return pc
}

type siteKey struct{}

// WithCallSite returns a context with its caller's call site, for goroutines that acquire on behalf of that call.
func WithCallSite(ctx context.Context) context.Context {
	return context.WithValue(ctx, siteKey{}, callSite())
}

func callSite() uintptr {
	var near [2]uintptr // mostly a method of Client, and its caller
	n := runtime.Callers(4, near[:])
	if pc := outside(near[:n]); pc != 0 {
		return pc
	}
	var all [32]uintptr
	n = runtime.Callers(4, all[:])
	return outside(all[:n])
}

// known has, for program counters that were looked up, whether they are in this module. Its size is bounded by the
// number of calls in the program's code.
var known sync.Map

// outside returns the first program counter outside this module; 0 if there is none.
func outside(pcs []uintptr) uintptr {
	for _, pc := range pcs {
		inside, found := known.Load(pc)
		if !found {
			_, out := site(pc).frame()
			inside = !out
			known.Store(pc, inside)
		}
		if inside == false {
			return pc
		}
	}
	return 0
}

// frame returns the call's frame, and whether it is outside this module; inlining gives one call several frames.
func (s site) frame() (f runtime.Frame, outside bool) {
	frames := runtime.CallersFrames([]uintptr{uintptr(s)})
	for more := s != 0; more; {
		if f, more = frames.Next(); f.Function != "" && !isOurs(f.Function) {
			return f, true
		}
	}
	return f, false
}

// module is the path of this module, and ours are the packages in it that call others on behalf of their callers.
const module = "github.com/mortise-go/mortise"

var ours = [...]string{".", "/internal/", "/middleware/", "/fxmodule", "/leader.", "/once.", "/semaphore.", "/quorum."}

func isOurs(function string) bool {
	if strings.HasPrefix(function, "runtime.") { // the first frame of a goroutine
		return true
	}
	rest, in := strings.CutPrefix(function, module)
	for _, p := range ours {
		if in && strings.HasPrefix(rest, p) {
			return true
		}
	}
	return false
}

// LogValue implements [slog.LogValuer].
func (s site) LogValue() slog.Value {
	f, _ := s.frame()
	if f.Function == "" {
		return slog.StringValue("unknown")
	}
	return slog.StringValue(fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Function))
}

// warnAt returns when to log that a hold lasts long; clock.Never if that is logged already, or not to be logged.
func warnAt(t *tenure, h *lease.Hold) int64 {
	if h.Marks.Long || h.Marks.Proclaims || !WarnsOfHolds(t.engine) {
		return clock.Never
	}
	return h.Since.Mono + int64(t.engine.Config.HoldWarning)
}

// warn logs each hold of a tenure that lasts long, once.
func warn(t *tenure, now clock.Instant) {
	for h := range t.All {
		if warnAt(t, h) <= now.Mono {
			h.Marks.Long = true
			t.engine.announce.Sum(announce.HeldLong, "", "name", fail.Shorten(h.Name()), "owner", fail.Shorten(t.Owner),
				"held", now.Sub(h.Since), "at", site(h.Site))
		}
	}
}
