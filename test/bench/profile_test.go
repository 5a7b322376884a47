//go:build linux

package bench

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/google/pprof/profile"
)

// spent is where the time of a Lock and an Unlock goes: what the profiler of Go and the kernel
// tell of a run of its own.
type spent struct {
	cpu      float64 // µs of the client's
	server   float64 // µs of the server's
	busy     float64 // cores
	switches float64 // of the client's threads
	parts    [parts]float64
}

// A client's time, in parts of all. What the runtime does belongs to the code that has it done, if it is not one of the
// first three.
const (
	partKernel = iota
	partScheduler
	partMemory
	partLibrary
	partOwn
	partRest
	parts
)

var partNames = [parts]string{"system calls", "goroutines", "memory", "client library", "mortise", "rest"}

// switches are those of this process's threads, as yet.
func switches() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Nvcsw + u.Nivcsw
}

// split sorts what a profile of the CPU has seen.
func split(raw []byte) (share [parts]float64, err error) {
	p, err := profile.Parse(bytes.NewReader(raw))
	if err != nil {
		return share, err
	}
	all := 0.0
	for _, s := range p.Sample {
		var stack []string // the innermost first
		for _, l := range s.Location {
			for _, line := range l.Line {
				stack = append(stack, line.Function.Name)
			}
		}
		n := float64(s.Value[len(s.Value)-1])
		share[partOf(stack)] += n
		all += n
	}
	for i := range share {
		share[i] /= max(all, 1)
	}
	return share, nil
}

var (
	// inKernel are where the time of system calls is seen.
	inKernel = []string{"Syscall6", "runtime.futex", "runtime.usleep", "runtime.epollwait", "runtime.tgkill",
		"runtime.madvise", "runtime.write1"}
	// ofMemory are what allocates and collects.
	ofMemory = []string{
		"runtime.mallocgc", "runtime.gc", "runtime.bgsweep", "runtime.bgscavenge", "runtime.newobject", "runtime.makeslice",
		"runtime.growslice",
		"runtime.wbBufFlush", "runtime.(*mheap)", "runtime.(*gcWork)", "runtime.scanobject", "runtime.memclr",
	}
	// ofScheduler are what puts goroutines to sleep, wakes them, and looks for one to run.
	ofScheduler = []string{
		"runtime.mcall", "runtime.schedule", "runtime.findRunnable", "runtime.park_m", "runtime.goready", "runtime.ready",
		"runtime.gopark", "runtime.chan", "runtime.send", "runtime.recv",
		"runtime.selectgo", "runtime.goschedImpl", "runtime.netpoll", "runtime.wakep", "runtime.startm", "runtime.stopm",
		"runtime.mstart", "runtime.sysmon", "runtime.semrelease",
		"runtime.semacquire", "sync.runtime_Sem", "internal/sync.runtime_Sem", "sync.runtime_notify", "runtime.exitsyscall",
		"runtime.reentersyscall", "runtime.entersyscall", "runtime.newproc",
		"runtime.(*timers)", "runtime.(*timer)",
	}
)

// partOf tells whose a stack is.
func partOf(stack []string) int {
	whose := partRest
	inner := len(stack) // frames of the runtime's, and of the standard library's
	for i, name := range stack {
		if strings.HasPrefix(name, "github.com/mortise-go/mortise/test/") || strings.HasPrefix(name, "main.") {
			inner = i
			break
		}
		if strings.HasPrefix(name, "github.com/mortise-go/mortise") {
			whose, inner = partOwn, i
			break
		}
		if strings.HasPrefix(name, "github.com/redis/") {
			whose, inner = partLibrary, i
			break
		}
	}
	for _, of := range []struct {
		part  int
		names []string
	}{{partKernel, inKernel}, {partMemory, ofMemory}, {partScheduler, ofScheduler}} {
		for _, name := range stack[:inner] {
			for _, is := range of.names {
				if strings.HasPrefix(name, is) || of.part == partKernel && strings.HasSuffix(name, is) {
					return of.part
				}
			}
		}
	}
	return whose
}

// spending writes where the time goes, of floors and ours.
func (r *results) spending(out io.Writer) {
	for _, w := range workloads() {
		one := r.of[w.name]
		if one == nil || !w.profiled() {
			continue
		}
		fmt.Fprintf(out, "\n| %s | client CPU | server CPU | cores busy | switches |", w.what)
		for _, name := range partNames {
			fmt.Fprintf(out, " %s |", name)
		}
		fmt.Fprintf(out, " p99 / mean |\n|---|---|---|---|---|%s---|\n", strings.Repeat("---|", len(partNames)))
		for _, c := range contenders() {
			s, took := one.spent[c.name]
			if !took {
				continue
			}
			fmt.Fprintf(out, "| %s | %s | %s | %.2f | %.2f |", c.title(), micros(s.cpu), micros(s.server), s.busy, s.switches)
			for _, v := range s.parts {
				fmt.Fprintf(out, " %.0f %% |", 100*v)
			}
			fmt.Fprintf(out, " %.1f |\n", spread(one.median[c.name]))
		}
	}
}
