// Package story is what the quickstart tells: six steps, each of which ends with a
// check. It knows nothing of the store; [World] is where that is.
package story

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
)

// World is the store that a story is told on.
type World struct {
	// Store says in a line what it is.
	Store string
	// Prefix keeps the names of locks apart from all others in the store.
	Prefix string
	// Backend is what mortise.New takes; each call is for another client.
	Backend func() (backend.Backend, error)
	// Delete removes a lock's record behind its holder's back, and DeleteHow says
	// how.
	Delete    func(ctx context.Context, name string) error
	DeleteHow string
	// Victim starts a holder of name that can be killed.
	Victim func(ctx context.Context, name string) (Victim, error)
	// Forget removes what a lock of this name leaves behind for good.
	Forget func(ctx context.Context, name string) error
}

// Victim holds a lock, renews it, and dies.
type Victim struct {
	What    string // what it is
	Kill    func() error
	KillHow string // what Kill does
}

// Watchdog is the watchdog timeout of the steps that wait for one to run out. The
// default of 30 seconds would make for a long story.
var Watchdog = 2500 * time.Millisecond

type step struct {
	title string
	run   func(ctx context.Context, s *scene) error
}

var steps = []step{
	{"One at a time, and handed over", handover},
	{"The holder enters again, others do not", reentry},
	{"The watchdog outlives the lease", watchdog},
	{"A killed holder's lock passes on", killed},
	{"A lost lock ends the context of its work", lost},
	{"A fencing token refuses a stale writer", fencing},
}

// Run tells the story on w. It fails with the first step that did not do what it
// claims.
func Run(ctx context.Context, out io.Writer, w World) error {
	t := &timeline{out: out, start: time.Now()}
	t.line("mortise, a distributed lock: %d things it does, on %s", len(steps), w.Store)
	for i, st := range steps {
		t.line("")
		t.line("%d  %s", i+1, st.title)
		s := &scene{timeline: t, world: w, number: i + 1}
		err := st.run(ctx, s)
		if cerr := s.close(); err == nil {
			err = cerr
		}
		if err != nil {
			t.line("   %7s  %v", "FAILED", err)
			return fmt.Errorf("step %d, %q: %w", i+1, st.title, err)
		}
	}
	t.line("")
	t.line("All %d held, in %.1f s.", len(steps), time.Since(t.start).Seconds())
	return nil
}

// timeline writes lines that bear the time since the start.
type timeline struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

func (t *timeline) line(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, format+"\n", args...)
}

// say tells what who did.
func (t *timeline) say(who, format string, args ...any) {
	t.line("   %7.3f  %-7s  %s", time.Since(t.start).Seconds(), who, fmt.Sprintf(format, args...))
}

// scene is one step: its clients, and its claim.
type scene struct {
	*timeline
	world   World
	number  int
	cleanup []func() error
}

// name makes the name of a lock; short is what the timeline calls it.
func (s *scene) name(short string) string {
	name := fmt.Sprintf("%s%d:%s", s.world.Prefix, s.number, short)
	s.cleanup = append(s.cleanup, func() error { return s.world.Forget(context.Background(), name) })
	return name
}

// client opens a client, as a process of its own would. One that begins to wait
// says so.
func (s *scene) client(who string, opts ...mortise.ClientOption) (*mortise.Client, error) {
	b, err := s.world.Backend()
	if err != nil {
		return nil, err
	}
	waits := mortise.Observer{Waiting: func(mortise.Event) {
		s.say(who, "is refused, and sleeps until it is woken")
	}}
	c, err := mortise.New(b, append([]mortise.ClientOption{mortise.WithObserver(waits)}, opts...)...)
	if err != nil {
		return nil, err
	}
	s.cleanup = append(s.cleanup, c.Close)
	return c, nil
}

// clients opens one for each name.
func (s *scene) clients(whos ...string) ([]*mortise.Client, error) {
	all := make([]*mortise.Client, len(whos))
	for i, who := range whos {
		c, err := s.client(who, mortise.WithWatchdogTimeout(Watchdog))
		if err != nil {
			return nil, err
		}
		all[i] = c
	}
	return all, nil
}

// claim is the end of a step: what was shown, or an error if it was not.
func (s *scene) claim(shown bool, format string, args ...any) error {
	if !shown {
		return fmt.Errorf("not so: "+format, args...)
	}
	s.line("   %7s  %s", "ok", fmt.Sprintf(format, args...))
	return nil
}

func (s *scene) close() error {
	var first error
	for i := len(s.cleanup) - 1; i >= 0; i-- {
		if err := s.cleanup[i](); first == nil {
			first = err
		}
	}
	return first
}

// sleep waits as work would: until the time is over or ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func ms(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}
