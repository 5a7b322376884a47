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

// site is the program counter of a call of this module from outside of it. It is found out what it means when it is
// logged.
type site uintptr

// WarnsOfHolds reports whether holds of an engine that last long are logged, with their call sites.
func WarnsOfHolds(e *Engine) bool { return e.Config.HoldWarning > 0 && e.announce.Logs() }

// siteOf is where its caller's caller was called from, or what ctx says of that; 0 where that is of no use.
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

// WithCallSite is ctx for goroutines of this module that lock for its caller: with where this module was called from.
func WithCallSite(ctx context.Context) context.Context {
	return context.WithValue(ctx, siteKey{}, callSite())
}

func callSite() uintptr {
	var near [2]uintptr // a method of Client, and what called it, mostly
	n := runtime.Callers(4, near[:])
	if pc := outside(near[:n]); pc != 0 {
		return pc
	}
	var all [32]uintptr
	n = runtime.Callers(4, all[:])
	return outside(all[:n])
}

// known is whether a program counter is in this module, for those that were asked for. They are as many as the program
// has calls of this module.
var known sync.Map

// outside is the first that is not in this module; 0 if all are.
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

// frame is the call, and whether it is outside of this module: functions may be inlined into it.
func (s site) frame() (f runtime.Frame, outside bool) {
	frames := runtime.CallersFrames([]uintptr{uintptr(s)})
	for more := s != 0; more; {
		if f, more = frames.Next(); f.Function != "" && !isOurs(f.Function) {
			return f, true
		}
	}
	return f, false
}

// module is the path of this module, and ours are its packages that act for their callers.
const module = "github.com/mortise-go/mortise"

var ours = [...]string{".", "/internal/", "/middleware/", "/fxmodule", "/leader.", "/once."}

func isOurs(function string) bool {
	if strings.HasPrefix(function, "runtime.") { // where a goroutine begins
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

// warnAt is when to log that a hold lasts long; clock.Never if it was logged, or is not to be.
func warnAt(t *tenure, h *lease.Hold) int64 {
	if h.Marks.Long || h.Marks.Proclaims || !WarnsOfHolds(t.engine) {
		return clock.Never
	}
	return h.Since.Mono + int64(t.engine.Config.HoldWarning)
}

// warn logs holds of a tenure that last long, each once.
func warn(t *tenure, now clock.Instant) {
	for h := range t.All {
		if warnAt(t, h) <= now.Mono {
			h.Marks.Long = true
			t.engine.announce.Sum(announce.HeldLong, "name", fail.Shorten(h.Name()), "owner", fail.Shorten(t.Owner),
				"held", now.Sub(h.Since), "at", site(h.Site))
		}
	}
}
