package record

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// A story is words separated by spaces, carried out one after the other. Each is
//
//	verb:argument:argument=outcome>notice,notice
//
// The outcome is that of the reply; without a = any is right. The notices are those that the step left, no others.
// Owners have a session of the same first letter: a1 and a2 are owners of session a; a/1 stands for a:1. All stories
// have
//
//	now:2s     the time is 2s
//	deaf:a     session a does not watch any more     hears:a  it does again
//	closed     nothing is granted from now on        open     it is again
//
// A notice is the session, or "all", what it is told, and for how long: b.granted:1s, all.released, a.wanted.
type story struct {
	t     *testing.T
	now   Time
	deaf  map[Session]bool
	shut  bool
	drawn int64
	// stranger watches the lock, and cannot enrol.
	stranger bool
	// do carries out a verb of the story's kind.
	do func(s *Step, verb string, args []string) string
}

func (w *story) Hears(x Session, _ backend.Topic) bool { return !w.deaf[x] }
func (w *story) Watched(t backend.Topic) bool          { return !w.deaf[sessionOf(t.Owner)] }
func (w *story) Strangers(backend.Topic, Session) bool { return w.stranger }
func (w *story) Drawn(string) int64                    { return w.drawn }

func (w *story) Draw(string) int64 {
	w.drawn++
	return w.drawn
}

// sessionOf returns the session of an owner: its first letter.
func sessionOf(owner string) Session {
	if owner == "" {
		return 0
	}
	return Session(owner[0])
}

// tell plays a story from its beginning.
func tell(t *testing.T, text string, do func(s *Step, verb string, args []string) string) {
	t.Helper()
	w := &story{t: t, now: time.Hour, deaf: make(map[Session]bool), do: do}
	for i, word := range strings.Fields(text) {
		if got, want := w.word(word); got != want {
			t.Fatalf("word %d, %s: %q, want %q", i+1, word, got, want)
		}
	}
}

// word carries out a word. It returns what came out, and what is to.
func (w *story) word(word string) (got, want string) {
	call, told, _ := strings.Cut(word, ">")
	call, want, judged := strings.Cut(call, "=")
	args := strings.Split(call, ":")
	verb, args := args[0], args[1:]
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "/", ":")
	}
	switch verb {
	case "now":
		w.now = time.Hour + duration(w.t, args[0])
		return "", ""
	case "deaf", "hears":
		w.deaf[sessionOf(args[0])] = verb == "deaf"
		return "", ""
	case "closed", "open":
		w.shut = verb == "closed"
		return "", ""
	case "stranger":
		w.stranger = true
		return "", ""
	}
	s := &Step{World: w, Name: "n", Now: w.now, NoGrants: w.shut}
	if len(args) > 0 {
		s.By = sessionOf(args[0])
	}
	got = w.do(s, verb, args)
	if !judged {
		got = ""
	}
	return got + ">" + notices(s), want + ">" + told
}

func notices(s *Step) string {
	var all []string
	for _, n := range s.Notices {
		to := ""
		for _, x := range n.To {
			to += string(rune(x))
		}
		switch {
		case n.All && to != "":
			to = "all+" + to
		case n.All:
			to = "all"
		case n.Strangers:
			to = "strangers"
		case to == "":
			continue
		}
		what := []string{"released", "changed", "granted", "reserved", "first", "wanted"}[n.What]
		switch {
		case n.Topic.Owner != "": // a fair waiter's topic, or that of those who wait to enter
			what += "(" + n.Topic.Owner + ")"
		case n.What == Granted && n.Token != 0:
			what += fmt.Sprintf("(%s,#%d):%v", n.Owner, n.Token, n.Lease)
		case n.What == Granted:
			what += fmt.Sprintf("(%s):%v", n.Owner, n.Lease)
		case n.What == First:
			what += ":" + n.After.String()
		}
		if n.Topic.Kind == backend.KindDelegated && !slices.Contains(watchesUnder, n.Topic.Owner) {
			continue // nobody waits to enter under most owners
		}
		all = append(all, to+"."+what)
	}
	return strings.Join(slices.Compact(all), ",") // both kinds of semaphores are told alike
}

// watchesUnder are the owners under which somebody waits to enter, in all stories.
var watchesUnder = []string{"outer"}

func duration(t *testing.T, s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// lease returns the last argument as a time; ten seconds if there is none.
func lease(t *testing.T, args []string) (rest []string, d time.Duration) {
	d = 10 * time.Second
	if last := len(args) - 1; last > 0 && strings.HasSuffix(args[last], "s") && args[last][0] <= '9' {
		return args[:last], duration(t, args[last])
	}
	return args, d
}

// held is the outcome of a reply about a hold.
func held(is bool) string {
	if is {
		return "held"
	}
	return "lost"
}

// granted is the outcome of a reply to a request for a lock.
func granted(r backend.AcquireReply) string {
	switch {
	case r.Granted && r.Token != 0:
		return fmt.Sprintf("#%d", r.Token)
	case r.Granted:
		return "granted"
	}
	return r.Remaining.String()
}

// placed is the outcome of a reply with a place in a queue.
func placed(r backend.AcquireReply, q backend.QueueReply) string {
	switch {
	case q.First:
		return granted(r) + ",first"
	case q.Enrolled:
		return granted(r) + ",queued"
	}
	return granted(r)
}
