//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

func TestTopShowsTheLocksOnATerminal(t *testing.T) {
	check.Long(t)
	server := redistest.Start(t, redistest.WithAOF())
	locks := client(t, server)
	first := check.Value(locks.Lock(t.Context(), "orders:1", mortise.Fenced(), mortise.WithLease(time.Hour))).In(t)
	p := openPane(t, at(server), 160, 12)
	p.enter("mortise top --every 50ms --read-only")
	p.shows("^store redis://" + regexp.QuoteMeta(server.Addr()) + ", no prefix$")
	p.shows(`^NAME +KIND +HOLDER +HOST +PID +AGE +LEFT +HOLDS +WAITERS +TOKEN$`)
	p.shows(fmt.Sprintf(`^orders:1 +lock +\S+ +\S+ +%d +\S+ +(59m|1h0m)\S+ +1 +0 +%d$`, os.Getpid(), first.Token()))
	p.shows("^1 of 1 locks at ")
	second := check.Value(locks.Lock(t.Context(), "orders:2", mortise.WithLease(2*time.Hour))).In(t)
	p.shows("^orders:2 ")
	third := check.Value(locks.Lock(t.Context(), "other", mortise.WithLease(time.Minute))).In(t)
	p.press("l")
	p.shows(`(?s)least left first.*\nother .*\norders:1 .*\norders:2 `)
	p.enter("/orders")
	p.shows("^2 of 2 with orders of 3 locks ")
	check.ErrorIf(t, strings.Contains(p.screen(), "other"), "what is filtered is shown: %s", p.screen())
	p.press("Escape")
	p.shows("^other ")

	p.tmux("resize-window", "-x", "40", "-y", "5")
	p.shows("^NAME +AGE +LEFT +WAITERS$")
	p.shows("^a age .*…$")
	p.tmux("resize-window", "-x", "160", "-y", "12")
	p.shows(" TOKEN$")

	server.Stop()
	p.shows("^not read since .*store unavailable")
	p.shows("^orders:2 ")
	server.Restart()
	p.shows("^3 of 3 locks at ")
	check.Done(t, second.Unlock(context.Background()))
	p.shows("^2 of 2 locks at ")

	p.press("C-z")
	p.shows(`Stopped +mortise top`)
	p.shell()
	p.enter("fg")
	p.shows("^2 of 2 locks at ")
	for _, key := range []string{"q", "C-c"} {
		p.press(key)
		p.shell()
		p.enter(`echo "code $?"`) // the screen of before is back
		check.Equal(t, "exit code %s", p.shows(`^code (\d+)$`), "0")
		check.ErrorIf(t, strings.Contains(p.screen(), "WAITERS"), "the table is left: %s", p.screen())
		p.enter("clear; mortise top")
		p.shows("^2 of 2 locks at ")
	}
	check.Done(t, third.Unlock(context.Background()))
	check.Done(t, first.Unlock(context.Background()))
	p.shows("^0 of 0 locks at ")
}

func TestTopHasColoursUnlessNO_COLORIsSet(t *testing.T) {
	check.Long(t)
	server := redistest.Start(t)
	for value, colours := range map[string]bool{"": true, "yes": false} {
		p := openPane(t, at(server), 80, 10, "NO_COLOR="+value)
		p.enter("mortise top")
		p.shows("^NAME ")
		p.shows("^0 of 0 locks")
		screen := p.tmux("capture-pane", "-p", "-e")
		check.Equal(t, "NO_COLOR="+value+": colours %t", strings.Contains(screen, "\x1b["), colours)
	}
}

func TestTopWithoutATerminalNamesLsAndWatch(t *testing.T) {
	for name, x := range map[string]struct {
		args []string
		want string
	}{
		"a pipe":    {[]string{"top"}, "mortise ls writes the locks once, mortise watch a line for each change"},
		"too often": {[]string{"top", "--every", "1ms"}, "10ms or more"},
	} {
		text, said, code := output(t, []string{"MORTISE_STORE=memory:"}, x.args...)
		check.ErrorIf(t, code != codeUsage || text != "" || !strings.Contains(said, x.want), "%s: %d, %q, %q",
			name, code, text, said)
	}
}
