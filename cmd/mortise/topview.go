package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// View implements [tea.Model].
func (m topModel) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	return v
}

// lines are the lines of the screen, none wider than it. A low screen leaves out the keys first, then the store, then
// the head of the table; the line that says how many locks there are, or what is wrong, stays.
func (m topModel) lines() []string {
	if m.width <= 0 || m.height <= 0 {
		return nil
	}
	rows := m.height - min(m.height, 4)
	if m.height < 5 {
		rows = min(1, m.height-1)
	}
	table := m.table(rows)
	var all []string
	if m.height >= 4 {
		all = append(all, m.cut(m.about))
	}
	all = append(all, m.status(len(table)-1))
	if m.height >= 3 {
		all = append(all, m.styled("7", table[0]))
	}
	all = append(all, table[1:]...)
	if m.height >= 5 {
		for len(all) < m.height-1 {
			all = append(all, "")
		}
		all = append(all, m.cut(m.keys()))
	}
	return all
}

// cut is a text that fits into a line.
func (m topModel) cut(text string) string { return ansi.Truncate(text, m.width, "…") }

// styled is a text with a style of the terminal, unless colours are not wanted.
func (m topModel) styled(style, text string) string {
	if m.plain || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[m"
}

// status says how many locks there are, of which time, or what is wrong.
func (m topModel) status(shown int) string {
	at := m.newest.at.Format(time.TimeOnly)
	text := ""
	if m.typing {
		text = "/" + printable(m.filter) + "_  "
	}
	switch {
	case m.problem != "" && m.whole:
		return m.styled("31", m.cut(text+"not read since "+at+": "+m.problem))
	case m.problem != "":
		return m.styled("31", m.cut(text+"not read: "+m.problem))
	case m.newest.at.IsZero():
		return m.cut(text + "reading")
	}
	if !m.whole || m.slow {
		text += "reading: "
	}
	text += fmt.Sprint(shown)
	if m.filter != "" {
		text += fmt.Sprintf(" of %d with %s", m.newest.matches, printable(m.filter))
	}
	return m.cut(fmt.Sprintf("%s of %d locks at %s, %s", text, m.newest.total, at, topOrders[m.by].text))
}

func (m topModel) keys() string {
	if m.typing {
		return "Enter keep  Esc remove"
	}
	return "a age  w waiters  l left  n name  / filter  r read now  q leave"
}

// gap is the space between two columns.
const gap = 2

// leftOut are the columns in the order in which a narrow screen leaves them out. HOLDER has host and process, as a
// rule. NAME stays.
var leftOut = [...]string{"HOST", "PID", "TOKEN", "HOLDS", "KIND", "HOLDER", "AGE", "WAITERS", "LEFT"}

// enough is the width of columns that may be cut, before others are left out; what is free is theirs.
var enough = map[string]int{"NAME": 24, "HOLDER": 20, "HOST": 20}

// table is the head of the table and so many rows at most.
func (m topModel) table(rows int) []string {
	shown := m.newest.locks[:min(rows, len(m.newest.locks))]
	all := [][len(columns)]string{columns}
	for _, i := range shown {
		all = append(all, cells(i, m.newest.at))
	}
	widths := m.widths(all)
	var lines []string
	for _, cells := range all {
		var b strings.Builder
		space := 0
		for n, cell := range cells {
			if widths[n] == 0 {
				continue
			}
			cell = ansi.Truncate(cell, widths[n], "…")
			b.WriteString(strings.Repeat(" ", space) + cell)
			space = gap + widths[n] - ansi.StringWidth(cell)
		}
		lines = append(lines, b.String())
	}
	return lines
}

// widths are the widths of the columns; 0 leaves one out.
func (m topModel) widths(rows [][len(columns)]string) (widths [len(columns)]int) {
	var wanted [len(columns)]int
	for _, cells := range rows {
		for n, cell := range cells {
			wanted[n] = max(wanted[n], ansi.StringWidth(cell))
		}
	}
	free := m.width + gap
	for n, name := range columns {
		widths[n] = wanted[n]
		if most, ok := enough[name]; ok {
			widths[n] = min(widths[n], most)
		}
		free -= widths[n] + gap
	}
	for _, name := range leftOut {
		if free >= 0 {
			break
		}
		n := slices.Index(columns[:], name)
		free += widths[n] + gap
		widths[n] = 0
	}
	if free < 0 { // NAME alone
		widths[0], free = m.width, 0
	}
	for n := range widths {
		if widths[n] > 0 {
			more := min(free, wanted[n]-widths[n])
			widths[n], free = widths[n]+more, free-more
		}
	}
	return widths
}
