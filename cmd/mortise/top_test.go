package main

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// shelf is a store of a test.
type shelf struct {
	all    []mortise.LockInfo
	failed error         // in the place of the last lock
	pause  time.Duration // before each lock
	looks  int
	hangs  bool // until the look is given up
	ended  int
}

func (s *shelf) locks(ctx context.Context) iter.Seq2[mortise.LockInfo, error] {
	return func(yield func(mortise.LockInfo, error) bool) {
		s.looks++
		defer func() { s.ended++ }()
		for n, i := range s.all {
			if s.pause > 0 {
				<-time.After(s.pause)
			}
			if s.failed != nil && n == len(s.all)-1 {
				break
			}
			if !yield(i, nil) {
				return
			}
		}
		if s.hangs {
			<-ctx.Done()
			yield(mortise.LockInfo{}, ctx.Err())
		} else if s.failed != nil {
			yield(mortise.LockInfo{}, s.failed)
		}
	}
}

// topScreen is a top in a bubble, whose commands run beside it as in a program.
type topScreen struct {
	t    *testing.T
	m    topModel
	msgs chan tea.Msg
	quit bool
}

// onTop runs f with a top of a store in a bubble.
func onTop(t *testing.T, s *shelf, width, height int, f func(p *topScreen)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := topModel{about: "store test:, no prefix", every: time.Second, plain: true, locks: s.locks, ctx: t.Context()}
		p := &topScreen{t: t, m: m, msgs: make(chan tea.Msg, 1000)}
		defer time.Sleep(time.Minute) // the commands that wait end
		p.do(m.Init())
		p.send(tea.WindowSizeMsg{Width: width, Height: height})
		f(p)
	})
}

func (p *topScreen) do(cmd tea.Cmd) {
	if cmd != nil {
		go func() { p.msgs <- cmd() }()
	}
}

// send sends a message, and then those of commands that are ready.
func (p *topScreen) send(msg tea.Msg) {
	p.t.Helper()
	p.msgs <- msg
	for {
		synctest.Wait()
		select {
		case msg := <-p.msgs:
			p.take(msg)
		default:
			return
		}
	}
}

func (p *topScreen) take(msg tea.Msg) {
	switch msg := msg.(type) {
	case tea.QuitMsg:
		p.quit = true
	case tea.BatchMsg:
		for _, cmd := range msg {
			p.do(cmd)
		}
	default:
		m, cmd := p.m.Update(msg)
		p.m = m.(topModel)
		p.do(cmd)
	}
}

// wait lets time pass, that of the bubble.
func (p *topScreen) wait(d time.Duration) {
	p.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		<-time.After(min(50*time.Millisecond, time.Until(end)))
		p.send(nil)
	}
}

// press presses keys: those of a text, or one that has a name.
func (p *topScreen) press(keys string) {
	p.t.Helper()
	named := map[string]tea.KeyPressMsg{
		"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "backspace": {Code: tea.KeyBackspace},
		"ctrl+c": {Code: 'c', Mod: tea.ModCtrl},
	}
	if k, ok := named[keys]; ok {
		p.send(k)
		return
	}
	for _, r := range keys {
		p.send(tea.KeyPressMsg{Code: r, Text: string(r)})
	}
}

// shows checks the names in the table, and that the status has a text.
func (p *topScreen) shows(names, status string) {
	p.t.Helper()
	lines := p.m.lines()
	var got []string
	for _, line := range lines[3 : len(lines)-1] {
		if fields := strings.Fields(line); len(fields) > 0 {
			got = append(got, fields[0])
		}
	}
	check.Equal(p.t, "names: %s", strings.Join(got, " "), names)
	check.ErrorIf(p.t, !strings.Contains(lines[1], status), "no %q in %q", status, lines[1])
}

// sample are locks that each order has in another order.
func sample() []mortise.LockInfo {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	return []mortise.LockInfo{
		{Name: "d", Held: true, Owner: "host-1/1/x:1", Host: "host-1", PID: 1, Remaining: 4 * time.Second, Since: at(100)},
		{Name: "b", Held: true, Owner: "host-2/2/x:1", Host: "host-2", PID: 2, Remaining: -1, Since: at(200), Waiters: 2},
		{Name: "a", Reserved: true, Waiters: 3},
		{Name: "c", Held: true, Owner: "other", Remaining: time.Second, Waiters: 1},
		{Name: "d", Held: true, Owner: "host-1/1/x:1", Host: "host-1", PID: 1, Remaining: 4 * time.Second, Since: at(100)},
	}
}

func TestTopIsSortedByTheOrderOfAKey(t *testing.T) {
	onTop(t, &shelf{all: sample()}, 120, 20, func(p *topScreen) {
		p.shows("d b a c", "oldest first")
		for _, x := range []struct{ key, names, text string }{
			{"w", "a b c d", "most waiters first"}, {"l", "c d b a", "least left first"}, {"n", "a b c d", "by name"},
			{"a", "d b a c", "oldest first"},
		} {
			p.press(x.key)
			p.shows(x.names, x.text)
		}
	})
}

func TestTopShowsTheLocksThatHaveTheTypedText(t *testing.T) {
	onTop(t, &shelf{all: sample()}, 120, 20, func(p *topScreen) {
		p.press("n")
		p.press("/HOST")
		p.shows("b d", "/HOST_  2 of 3 with HOST of 5 locks") // a name that is listed twice is counted twice
		p.press("-2q")
		p.shows("", "/HOST-2q_  0 of 0")
		check.ErrorIf(t, p.quit, "a q of the filter leaves")
		p.press("backspace")
		p.shows("b", "/HOST-2_")
		p.press("enter")
		p.shows("b", "1 of 1 with HOST-2 of 5 locks")
		p.press("w") // is an order again
		p.shows("b", "most waiters first")
		p.press("esc")
		p.shows("a b c d", "4 of 5 locks")
		p.press("/")
		p.send(tea.PasteMsg{Content: "c"})
		p.shows("c", "/c_")
		p.press("backspace")
		p.press("backspace") // of nothing
		p.shows("a b c d", "/_")
	})
}

func TestTopEndsByItsKeys(t *testing.T) {
	for _, keys := range [][]string{{"q"}, {"ctrl+c"}, {"/", "ctrl+c"}} {
		onTop(t, &shelf{all: sample()}, 80, 20, func(p *topScreen) {
			for _, k := range keys {
				check.ErrorIf(t, p.quit, "it ended before %q", k)
				p.press(k)
			}
			check.ErrorIf(t, !p.quit, "it goes on after %q", keys)
		})
	}
}

func TestTopReadsEachSecondAndByAKey(t *testing.T) {
	s := &shelf{all: sample()}
	onTop(t, s, 80, 20, func(p *topScreen) {
		check.Equal(t, "%d looks", s.looks, 1)
		p.wait(time.Second - time.Millisecond)
		check.Equal(t, "within a second: %d looks", s.looks, 1)
		p.wait(time.Millisecond)
		check.Equal(t, "after a second: %d looks", s.looks, 2)
		s.all = s.all[:1]
		p.press("r")
		check.Equal(t, "by the key: %d looks", s.looks, 3)
		p.shows("d", "1 of 1 locks")
		p.wait(time.Second)
		check.Equal(t, "a second after the key: %d looks", s.looks, 4)
	})
}

func TestAnErrorIsALineOfTopAndItGoesOn(t *testing.T) {
	s := &shelf{all: sample(), failed: fmt.Errorf("%w: refused\x1b[2J", mortise.ErrUnavailable)}
	onTop(t, s, 200, 20, func(p *topScreen) {
		check.ErrorIf(t, !strings.HasPrefix(p.m.lines()[1], "not read: "), "at first: %q", p.m.lines()[1])
		s.failed = nil
		p.wait(time.Second)
		p.shows("d b a c", "4 of 5 locks at")
		at := time.Now().Format(time.TimeOnly)
		s.failed = fmt.Errorf("%w: refused\x1b[2J", mortise.ErrUnavailable)
		p.wait(3 * time.Second)
		p.shows("d b a c", "not read since "+at+": ")
		check.ErrorIf(t, strings.Contains(p.m.lines()[1], "\x1b"), "the error moves the cursor: %q", p.m.lines()[1])
		s.failed = nil
		p.wait(time.Second)
		p.shows("d b a c", "4 of 5 locks at "+time.Now().Format(time.TimeOnly))
	})
}

func TestALookOfTopThatLastsShowsThatItReads(t *testing.T) {
	s := &shelf{all: sample(), pause: 300 * time.Millisecond}
	onTop(t, s, 120, 20, func(p *topScreen) {
		p.shows("", "reading")
		p.wait(600 * time.Millisecond)
		p.shows("d b", "reading: 2 of 2 locks") // what the first look has found so far
		p.wait(900 * time.Millisecond)
		p.shows("d b a c", "4 of 5 locks")
		s.all, s.pause, s.hangs = s.all[:1], 0, true
		p.wait(1900 * time.Millisecond)
		p.shows("d b a c", "4 of 5 locks at") // what a later look has found is shown when it is done
		p.wait(1200 * time.Millisecond)
		p.shows("d b a c", "reading: 4 of 5 locks at")
		s.hangs = false
		p.press("r")
		p.shows("d", "1 of 1 locks")
		check.Equal(t, "%d looks have ended", s.ended, s.looks)
	})
}

// The memory of top is that of a screen, whatever the number of locks.
func TestTopKeepsWhatTheScreenCanShow(t *testing.T) {
	s := &shelf{}
	for n := range 10_000 {
		s.all = append(s.all, mortise.LockInfo{Name: fmt.Sprint("n", n), Since: time.Unix(int64(n*7919%10_000), 0)})
	}
	onTop(t, s, 120, 20, func(p *topScreen) {
		p.shows(oldest(s.all, 16), "16 of 10000 locks")
		kept := p.m.newest
		check.ErrorIf(t, cap(kept.locks) > 20 || cap(kept.look.kept) > 20, "%d and %d locks are kept",
			cap(kept.locks), cap(kept.look.kept))
		p.send(tea.WindowSizeMsg{Width: 120, Height: 60})
		p.shows(oldest(s.all, 56), "56 of 10000 locks")
	})
}

// oldest are the names of the n oldest locks.
func oldest(all []mortise.LockInfo, n int) string {
	var names []string
	for _, i := range slices.SortedFunc(slices.Values(all), func(a, b mortise.LockInfo) int {
		return a.Since.Compare(b.Since)
	})[:n] {
		names = append(names, i.Name)
	}
	return strings.Join(names, " ")
}

// Whatever the size of the terminal and what others wrote: no line is wider than it, there are no more lines than fit,
// and columns are left out in their order.
func TestTopFitsOnEveryScreen(t *testing.T) {
	s := &shelf{all: append(sample(), mortise.LockInfo{
		Name: "订单/" + strings.Repeat("long-name-", 10), Kind: "read-write", Held: true, Owner: "evil\x1b[2J\n\t:1",
		Host: "host.example.internal.example", PID: 4_000_000, Holds: 100, Token: 1 << 40, Remaining: 99 * time.Hour,
	})}
	onTop(t, s, 300, 20, func(p *topScreen) {
		all := strings.Fields(p.m.lines()[2])
		check.Equal(t, "columns of a wide screen: %s", strings.Join(all, " "), strings.Join(columns[:], " "))
		for _, problem := range []string{"", strings.Repeat("a problem ", 40)} {
			p.m.problem = problem
			for width := 1; width <= 200; width++ {
				for height := 1; height <= 7; height++ {
					p.m.width, p.m.height = width, height
					p.fits()
				}
			}
		}
	})
}

// fits checks the screen.
func (p *topScreen) fits() {
	p.t.Helper()
	m, lines := p.m, p.m.lines()
	check.ErrorIf(p.t, len(lines) > m.height || m.height >= 5 && len(lines) != m.height,
		"%d lines of %d", len(lines), m.height)
	for _, line := range lines {
		check.ErrorIf(p.t, ansi.StringWidth(line) > m.width, "wider than %d: %q", m.width, line)
		check.ErrorIf(p.t, strings.ContainsAny(line, "\x1b\n\t"), "%q", line)
	}
	if m.height < 3 || m.width < len("NAME") {
		return
	}
	heads := strings.Fields(m.table(0)[0])
	check.ErrorIf(p.t, heads[0] != "NAME", "%d wide: no NAME in %q", m.width, heads)
	left := slices.IndexFunc(leftOut[:], func(c string) bool { return slices.Contains(heads, c) })
	if left < 0 {
		left = len(leftOut)
	}
	check.ErrorIf(p.t, len(heads) != 1+len(leftOut)-left, "%d wide: %q is not in the order", m.width, heads)
}

func TestTopHasNoColoursWhereTheyAreNotWanted(t *testing.T) {
	onTop(t, &shelf{all: sample()}, 80, 20, func(p *topScreen) {
		for _, problem := range []string{"", "x"} {
			p.m.problem = problem
			for _, plain := range []bool{true, false} {
				p.m.plain = plain
				check.Equal(t, fmt.Sprintf("plain %t: colours %%t", plain), strings.Contains(p.m.View().Content, "\x1b"), !plain)
			}
		}
	})
}
