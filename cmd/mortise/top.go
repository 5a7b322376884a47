package main

import (
	"context"
	"errors"
	"iter"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/mortise-go/mortise"
)

func topCommand(s *settings) *cobra.Command {
	var every time.Duration
	c := &cobra.Command{
		Use:   "top [PREFIX]",
		Short: "Show the locks that are held in a table that goes on, sorted and filtered by keys",
		Long: `Show the locks that are held, as ls does, in a table that is read again and again, until q or Ctrl-C. It shows
as many locks as the screen has lines, the first by the order that a key chooses; the others are counted. It changes
nothing. While the store does not answer, a line says so, and the table is that of the last answer. A narrow terminal
leaves out columns: HOST first, then PID, TOKEN, HOLDS, KIND, HOLDER, AGE, WAITERS and LEFT. NO_COLOR is heeded.

Keys:
  a  the oldest first; locks whose age the store does not know come last
  w  most waiters first
  l  least left first
  n  by name
  /  type a text that name, holder or host have; Enter keeps it, Esc removes it
  r  read now
  q  leave`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completesNames(s),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := mayLook(every); err != nil {
				return err
			}
			if !term.IsTerminal(os.Stdout.Fd()) || os.Getenv("TERM") == "dumb" {
				return errNoTerminal
			}
			redis.SetLogger(silent{}) // else it writes failed dials across the table, which has a line for errors
			prefix := strings.Join(args, "")
			return untilInterrupted(s, func(ctx context.Context, locks *mortise.Client) error {
				m := topModel{about: s.inForce(), every: every, plain: os.Getenv("NO_COLOR") != ""}
				if prefix != "" {
					m.about += ", names that begin with " + printable(prefix)
				}
				ctx, stop := context.WithCancel(ctx)
				defer stop()
				m.locks = func(ctx context.Context) iter.Seq2[mortise.LockInfo, error] { return locks.Locks(ctx, prefix) }
				m.ctx = ctx
				p := tea.NewProgram(m, tea.WithoutSignalHandler()) // ctx ends by signals
				context.AfterFunc(ctx, p.Quit)
				_, err := p.Run()
				return err
			})
		},
	}
	everyFlag(c, &every)
	return c
}

// silent is a logger of go-redis.
type silent struct{}

// Printf implements go-redis' logger.
func (silent) Printf(context.Context, string, ...any) {}

// errNoTerminal is the error of top where its table could not be drawn.
var errNoTerminal = &coded{codeUsage, errors.New("top needs a terminal that can move its cursor; " +
	"mortise ls writes the locks once, mortise watch a line for each change")}

// topModel is the state of top. Update and View are functions of it.
type topModel struct {
	about string // the store
	locks func(ctx context.Context) iter.Seq2[mortise.LockInfo, error]
	ctx   context.Context // of the program: a tea.Cmd gets none
	every time.Duration
	plain bool // without colours

	width, height int
	by            topOrder
	filter        string
	typing        bool // the filter

	look    *topLook // under way
	looks   int      // begun so far
	slow    bool     // it goes on for longer than others do
	newest  topFound // what is shown
	whole   bool     // a look with this order and filter has read all locks
	problem string   // why the newest look failed
}

// topWake begins the next look, unless another has begun since look number after.
type topWake struct{ after int }

// topSlow says that a look has gone on for a while.
type topSlow struct{ look *topLook }

// slowAfter is when a look that goes on is shown to do so: the store may not answer.
const slowAfter = 2 * time.Second

// Init implements [tea.Model]. The first look begins when the size is known.
func (m topModel) Init() tea.Cmd { return nil }

// Update implements [tea.Model].
func (m topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		more := m.looks == 0 || msg.Height > m.height
		m.width, m.height = msg.Width, msg.Height
		if more {
			return m.again()
		}
	case topWake:
		if m.look == nil && msg.after == m.looks {
			return m.begin()
		}
	case topSlow:
		m.slow = m.slow || msg.look == m.look
	case topFound:
		return m.found(msg)
	case tea.PasteMsg:
		if m.typing {
			return m.filtered(m.filter + msg.Content)
		}
	case tea.KeyPressMsg:
		return m.key(msg)
	}
	return m, nil
}

// begin begins a look, and gives up one that is under way.
func (m topModel) begin() (tea.Model, tea.Cmd) {
	if m.look != nil {
		m.look.cancel() // its next message, which none expects, ends it
	}
	m.looks, m.slow = m.looks+1, false
	m.look = newTopLook(m.ctx, m.locks, topKeep{most: m.height, by: m.by, filter: strings.ToLower(m.filter)})
	look := m.look
	slow := tea.Tick(slowAfter, func(time.Time) tea.Msg { return topSlow{look} })
	return m, tea.Batch(look.goOn, slow)
}

// again begins a look that shows at once what it finds: the one before looked for something else.
func (m topModel) again() (tea.Model, tea.Cmd) {
	m.whole = false
	return m.begin()
}

// found takes what a look has found so far.
func (m topModel) found(f topFound) (tea.Model, tea.Cmd) {
	if f.look != m.look {
		f.look.end()
		return m, nil
	}
	if f.failed == nil && (f.done || !m.whole) || m.newest.at.IsZero() {
		m.newest = f
	}
	if !f.done {
		return m, f.look.goOn
	}
	m.look, m.slow, m.problem = nil, false, ""
	if f.failed != nil {
		m.problem = printable(f.failed.Error())
	} else {
		m.whole = true
	}
	after := m.looks
	return m, tea.Tick(m.every, func(time.Time) tea.Msg { return topWake{after} })
}

// key does what a key is for.
func (m topModel) key(k tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	switch name := k.String(); {
	case name == "ctrl+c":
		return m, tea.Quit
	case name == "ctrl+z":
		return m, tea.Suspend
	case name == "esc":
		m.typing = false
		return m.filtered("")
	case m.typing:
		return m.typed(name, k.Text)
	case name == "q":
		return m, tea.Quit
	case name == "/":
		m.typing = true
	case name == "r":
		return m.begin()
	default:
		for by, o := range topOrders {
			if name == o.key {
				m.by = topOrder(by)
				m.newest.locks = (&topKeep{by: m.by, most: len(m.newest.locks)}).first(m.newest.locks)
				return m.again()
			}
		}
	}
	return m, nil
}

// typed takes a key for the filter.
func (m topModel) typed(key, text string) (tea.Model, tea.Cmd) {
	switch key {
	case "enter":
		m.typing = false
		return m, nil
	case "backspace":
		_, last := utf8.DecodeLastRuneInString(m.filter)
		return m.filtered(m.filter[:len(m.filter)-last])
	}
	return m.filtered(m.filter + text)
}

// filtered filters what is shown, and looks for the rest.
func (m topModel) filtered(filter string) (tea.Model, tea.Cmd) {
	if filter == m.filter {
		return m, nil
	}
	m.filter = filter
	k := topKeep{filter: strings.ToLower(filter)}
	var locks []mortise.LockInfo
	for _, i := range m.newest.locks {
		if k.has(&i) {
			locks = append(locks, i)
		}
	}
	m.newest.locks, m.newest.matches = locks, len(locks)
	return m.again()
}
