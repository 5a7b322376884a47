package main

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/mortise-go/mortise"
)

// topOrder is an index of topOrders.
type topOrder int

// topOrders are the orders of top, each with its key. Locks that are equal in one are in the order of their names.
var topOrders = [...]struct {
	key, text string
	compare   func(a, b *mortise.LockInfo) int
}{
	{"a", "oldest first", func(a, b *mortise.LockInfo) int {
		return cmp.Or(lastIf(a.Since.IsZero(), b.Since.IsZero()), a.Since.Compare(b.Since))
	}},
	{"w", "most waiters first", func(a, b *mortise.LockInfo) int { return cmp.Compare(b.Waiters, a.Waiters) }},
	{"l", "least left first", func(a, b *mortise.LockInfo) int {
		return cmp.Or(lastIf(!a.Held, !b.Held), lastIf(a.Remaining < 0, b.Remaining < 0),
			cmp.Compare(a.Remaining, b.Remaining))
	}},
	{"n", "by name", func(_, _ *mortise.LockInfo) int { return 0 }},
}

// lastIf sorts what is true of behind what is not.
func lastIf(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// topKeep says which locks of a look are kept: the first in an order that have a text.
type topKeep struct {
	most   int
	by     topOrder
	filter string // in lower case
}

// has reports whether a lock has the text of the filter.
func (k *topKeep) has(i *mortise.LockInfo) bool {
	return k.filter == "" || strings.Contains(strings.ToLower(i.Name), k.filter) ||
		strings.Contains(strings.ToLower(i.Owner), k.filter) || strings.Contains(strings.ToLower(i.Host), k.filter)
}

// first sorts locks and keeps the first, each name once: a list may have it twice. Pages come in any order, so what was
// cut off is behind all that is kept.
func (k *topKeep) first(all []mortise.LockInfo) []mortise.LockInfo {
	all = slices.Clone(all) // another may show it
	slices.SortStableFunc(all, func(a, b mortise.LockInfo) int { return cmp.Compare(a.Name, b.Name) })
	all = slices.CompactFunc(all, func(a, b mortise.LockInfo) bool { return a.Name == b.Name })
	slices.SortStableFunc(all, func(a, b mortise.LockInfo) int { return topOrders[k.by].compare(&a, &b) })
	return all[:min(len(all), k.most):min(len(all), k.most)]
}

// topLook reads the locks of a store, in steps.
type topLook struct {
	keep    topKeep
	cancel  context.CancelFunc
	next    func() (mortise.LockInfo, error, bool)
	stop    func()
	kept    []mortise.LockInfo // kept, and more
	matches int
	total   int
}

// topFound is what a look has found so far.
type topFound struct {
	look           *topLook
	at             time.Time
	locks          []mortise.LockInfo // sorted; the first of those that match
	matches, total int                // those that are not kept are counted perhaps twice
	done           bool
	failed         error // with done
}

func newTopLook(
	ctx context.Context, locks func(context.Context) iter.Seq2[mortise.LockInfo, error], keep topKeep,
) *topLook {
	l := &topLook{keep: keep}
	ctx, l.cancel = context.WithCancel(ctx)
	l.next, l.stop = iter.Pull2(locks(ctx))
	return l
}

// tellsEvery is how often a look tells what it has found.
const tellsEvery = 250 * time.Millisecond

// goOn is a command: it reads on until there is something to tell. Commands of a look run one after the other.
func (l *topLook) goOn() tea.Msg {
	began := time.Now()
	for {
		info, err, ok := l.next()
		if !ok || err != nil {
			defer l.end()
			return l.tell(true, err)
		}
		l.total++
		if l.keep.has(&info) {
			l.matches++
			if l.kept = append(l.kept, info); len(l.kept) >= 2*l.keep.most+100 {
				l.kept = l.keep.first(l.kept)
			}
		}
		if time.Since(began) >= tellsEvery {
			return l.tell(false, nil)
		}
	}
}

func (l *topLook) tell(done bool, failed error) topFound {
	l.kept = l.keep.first(l.kept)
	return topFound{l, time.Now(), l.kept, l.matches, l.total, done, failed}
}

// end releases what a look holds. No command of the look is under way.
func (l *topLook) end() {
	l.cancel()
	l.stop()
}
