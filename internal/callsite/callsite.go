// Package callsite finds the call of this module that a program's code made, on the stack of the goroutine.
package callsite

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
)

// Site is the program counter of a call into this module; 0 if it is unknown. It is resolved to a file and a line only
// when it is written.
type Site uintptr

// Of returns the site of the call that the goroutine is in. If the whole stack is of this module, that of [With] is
// returned; 0 if there is none. Skip is the number of frames of this module that are known to be on the stack: 0 for
// the caller of Of.
func Of(ctx context.Context, skip int) Site {
	s := here(skip + 1)
	if s == 0 && ctx != nil {
		s, _ = ctx.Value(key{}).(Site)
	}
	return s
}

type key struct{}

// With returns a context with its caller's site, for goroutines that act on behalf of that call.
func With(ctx context.Context) context.Context {
	return context.WithValue(ctx, key{}, here(1))
}

func here(skip int) Site {
	var near [2]uintptr // mostly a method of Client, and its caller
	n := runtime.Callers(skip+2, near[:])
	if pc := outside(near[:n]); pc != 0 {
		return Site(pc)
	}
	var all [32]uintptr
	n = runtime.Callers(skip+2, all[:])
	return Site(outside(all[:n]))
}

// known has, for program counters that were looked up, whether they are in this module. Its size is bounded by the
// number of calls in the program's code.
var known sync.Map

// outside returns the first program counter outside this module; 0 if there is none.
func outside(pcs []uintptr) uintptr {
	for _, pc := range pcs {
		inside, found := known.Load(pc)
		if !found {
			_, out := Site(pc).frame()
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
func (s Site) frame() (f runtime.Frame, outside bool) {
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
	name, _, _ := strings.Cut(function[strings.LastIndexByte(function, '/')+1:], ".")
	if strings.HasSuffix(name, "_test") { // a program that uses the package
		return false
	}
	rest, in := strings.CutPrefix(function, module)
	for _, p := range ours {
		if in && strings.HasPrefix(rest, p) {
			return true
		}
	}
	return false
}

// String returns the file, the line and the function.
func (s Site) String() string {
	f, _ := s.frame()
	if f.Function == "" {
		return "unknown"
	}
	return fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Function)
}

// LogValue implements [slog.LogValuer].
func (s Site) LogValue() slog.Value { return slog.StringValue(s.String()) }
