package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/mortise-go/mortise"
)

// lock is a lock as -o json and -o yaml write it. What a store does not know is left out.
type lock struct {
	Name     string     `json:"name" yaml:"name"`
	Kind     string     `json:"kind,omitempty" yaml:"kind,omitempty"`
	Held     bool       `json:"held" yaml:"held"`
	Reserved bool       `json:"reserved,omitempty" yaml:"reserved,omitempty"`
	Owner    string     `json:"owner,omitempty" yaml:"owner,omitempty"`
	Host     string     `json:"host,omitempty" yaml:"host,omitempty"`
	PID      int        `json:"pid,omitempty" yaml:"pid,omitempty"`
	Since    *time.Time `json:"since,omitempty" yaml:"since,omitempty"`
	LeftMS   *int64     `json:"leftMs,omitempty" yaml:"leftMs,omitempty"` // none: the lease has no end
	Holds    int        `json:"holds" yaml:"holds"`
	Token    int64      `json:"token,omitempty" yaml:"token,omitempty"`
	Readers  int        `json:"readers,omitempty" yaml:"readers,omitempty"`
	Writing  bool       `json:"writing,omitempty" yaml:"writing,omitempty"`
	Waiters  int        `json:"waiters" yaml:"waiters"`
	Queue    []place    `json:"queue,omitempty" yaml:"queue,omitempty"`
}

// place is a waiter in the queue of a lock.
type place struct {
	Owner string     `json:"owner,omitempty" yaml:"owner,omitempty"`
	Host  string     `json:"host,omitempty" yaml:"host,omitempty"`
	PID   int        `json:"pid,omitempty" yaml:"pid,omitempty"`
	Tag   string     `json:"tag,omitempty" yaml:"tag,omitempty"`
	Since *time.Time `json:"since,omitempty" yaml:"since,omitempty"`
}

func lockOf(i mortise.LockInfo) lock {
	l := lock{
		Name: i.Name, Kind: i.Kind, Held: i.Held, Reserved: i.Reserved, Owner: i.Owner, Host: i.Host, PID: i.PID,
		Since: known(i.Since), Holds: i.Holds, Token: i.Token, Readers: i.Readers, Writing: i.Writing, Waiters: i.Waiters,
	}
	if i.Held && i.Remaining >= 0 {
		ms := i.Remaining.Milliseconds()
		l.LeftMS = &ms
	}
	for _, w := range i.Queue {
		l.Queue = append(l.Queue, place{Owner: w.Owner, Host: w.Host, PID: w.PID, Tag: w.Tag, Since: known(w.Since)})
	}
	return l
}

// known is a time, or nil if it is not known.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// formatFlag adds -o to a command.
func formatFlag(c *cobra.Command, format *string) {
	c.Flags().StringVarP(format, "output", "o", "table", "table, wide, json (a line for each lock), yaml or name")
	c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		[]string{"table", "wide", "json", "yaml", "name"}, cobra.ShellCompDirectiveNoFileComp))
}

// writer writes locks in a format, one after the other.
type writer interface {
	write(i mortise.LockInfo) error
	flush() error
}

// writerOf returns what writes in a format. A table begins with which store it is about.
func writerOf(format string, w io.Writer, about func() string) (writer, error) {
	switch format {
	case "table", "wide":
		return &table{Writer: tabwriter.NewWriter(w, 0, 8, 2, ' ', 0), wide: format == "wide", about: about}, nil
	case "json":
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		return encoded{func(l any) error { return e.Encode(l) }}, nil
	case "yaml":
		return encoded{func(l any) error {
			text, err := yaml.Marshal(l)
			if err == nil {
				_, err = fmt.Fprintf(w, "---\n%s", text)
			}
			return err
		}}, nil
	case "name":
		return encoded{func(l any) error {
			_, err := fmt.Fprintln(w, l.(lock).Name)
			return err
		}}, nil
	}
	return nil, &coded{codeUsage, errors.New("-o is table, wide, json, yaml or name")}
}

// encoded writes each lock as it comes.
type encoded struct{ encode func(l any) error }

func (e encoded) write(i mortise.LockInfo) error { return e.encode(lockOf(i)) }
func (encoded) flush() error                     { return nil }

// table has a row for each lock.
type table struct {
	*tabwriter.Writer
	wide  bool
	about func() string
	rows  int
}

// rowsTogether is how many rows of a table are laid out together: a list without end needs no memory without end.
const rowsTogether = 200

// columns are those of a table, and of top.
var columns = [...]string{"NAME", "KIND", "HOLDER", "HOST", "PID", "AGE", "LEFT", "HOLDS", "WAITERS", "TOKEN"}

// cells is the row of a lock, a cell for each of the columns, as it was at a time.
func cells(i mortise.LockInfo, at time.Time) [len(columns)]string {
	age := "-"
	if !i.Since.IsZero() {
		age = at.Sub(i.Since).Round(time.Second).String()
	}
	return [...]string{printable(i.Name), i.Kind, printable(i.Owner), cmp.Or(printable(i.Host), "-"), number(i.PID), age,
		left(i), strconv.Itoa(i.Holds), strconv.Itoa(i.Waiters), number(int(i.Token))}
}

func (t *table) write(i mortise.LockInfo) error {
	if t.rows == 0 {
		fmt.Fprintln(t, t.about())
		t.line(columns, "SINCE\tNEXT")
	}
	next, since := "-", "-"
	if len(i.Queue) > 0 {
		next = waiterName(i.Queue[0])
	}
	if !i.Since.IsZero() {
		since = i.Since.UTC().Format(time.RFC3339)
	}
	t.line(cells(i, time.Now()), since+"\t"+next)
	if t.rows++; t.rows%rowsTogether == 0 {
		return t.Flush()
	}
	return nil
}

func (t *table) line(cells [len(columns)]string, more string) {
	row := strings.Join(cells[:], "\t")
	if t.wide {
		row += "\t" + more
	}
	fmt.Fprintln(t, row)
}

func (t *table) flush() error {
	if t.rows == 0 {
		fmt.Fprintln(t, t.about())
	}
	return t.Flush()
}

// printable is a text of another's, without what moves the cursor or begins another column.
func printable(text string) string {
	quoted := strconv.Quote(text)
	if inner := quoted[1 : len(quoted)-1]; inner != text {
		return quoted
	}
	return text
}

// number is a number that is unknown if it is zero.
func number(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// left says how long a lease still is.
func left(i mortise.LockInfo) string {
	switch {
	case !i.Held:
		return "-"
	case i.Remaining < 0:
		return "no end"
	}
	return i.Remaining.Round(time.Millisecond).String()
}

func waiterName(w mortise.LockWaiter) string {
	return printable(cmp.Or(w.Owner, w.Tag, "a client that the store does not name"))
}
