package lockz

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"text/tabwriter"
	"time"
	"unicode"
)

// most is how many leases, and how many calls that wait, an answer lists.
const most = 1000

// Lock is a lease that is held, or a call that waits, in the JSON form of a page.
type Lock struct {
	Name string `json:"name"`
	// Kind is that of [mortise.Event].
	Kind string `json:"kind"`
	// Since is when the lock was acquired, or when the call began to wait, by this process's clock.
	Since time.Time `json:"since"`
	// Holds is the hold count after the acquisition, Token the fencing token, and Owner the holder in the store; all of
	// them are zero for a call that waits.
	Holds int    `json:"holds,omitempty"`
	Token int64  `json:"token,omitempty"`
	Owner string `json:"owner,omitempty"`
	// At is the file, the line and the function of the program that called; "unknown" if the call came from a goroutine
	// of mortise.
	At string `json:"at"`
}

// Locks is the JSON form of a page: the oldest first, at most 1,000 of each. HeldInAll and WaitingInAll count all.
type Locks struct {
	Held         []Lock `json:"held"`
	Waiting      []Lock `json:"waiting"`
	HeldInAll    int    `json:"heldInAll"`
	WaitingInAll int    `json:"waitingInAll"`
}

// Locks returns what the clients hold and wait for now, of names that begin with prefix. A call that has ended its wait
// and holds the lock may be in neither list for a moment.
func (p *Page) Locks(prefix string) Locks {
	held, waiting := p.entries(prefix)
	return Locks{list(held), list(waiting), len(held), len(waiting)}
}

func list(entries []entry) []Lock {
	all := make([]Lock, 0, min(len(entries), most))
	for _, x := range entries[:min(len(entries), most)] {
		e := x.event
		all = append(all, Lock{e.Name, e.Kind, x.since, e.Holds, e.Token, e.Owner, x.site.String()})
	}
	return all
}

// ServeHTTP answers with two tables as text, what is held and what waits, or with [Locks] as JSON for ?format=json.
// ?prefix=orders: lists the names that begin with it. Paths of source files and names of locks are in it: put it behind
// what protects pprof.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "lockz: GET and HEAD only", http.StatusMethodNotAllowed)
		return
	}
	locks := p.Locks(r.FormValue("prefix"))
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch format := r.FormValue("format"); format {
	case "json":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(locks) // the reader has left: nobody is to be told
	case "", "text":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		write(w, locks, time.Now())
	default:
		http.Error(w, fmt.Sprintf("lockz: the format %.20q is not known: text or json", format), http.StatusBadRequest)
	}
}

// write writes two tables.
func write(w io.Writer, locks Locks, now time.Time) {
	host, _ := os.Hostname()
	fmt.Fprintf(w, "process %d on %s: holds %d, waits for %d\n", os.Getpid(), host, locks.HeldInAll, locks.WaitingInAll)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(locks.Held) > 0 {
		fmt.Fprint(t, "\nHELD\tKIND\tFOR\tHOLDS\tTOKEN\tOWNER\tAT\n")
		for _, l := range locks.Held {
			fmt.Fprintf(t, "%s\t%s\t%v\t%d\t%s\t%s\t%s\n", printable(l.Name), l.Kind, age(l, now), l.Holds,
				number(l.Token), printable(l.Owner), l.At)
		}
		rest(t, locks.HeldInAll-len(locks.Held))
		_ = t.Flush()
	}
	if len(locks.Waiting) > 0 {
		fmt.Fprint(t, "\nWAITS FOR\tKIND\tFOR\tAT\n")
		for _, l := range locks.Waiting {
			fmt.Fprintf(t, "%s\t%s\t%v\t%s\n", printable(l.Name), l.Kind, age(l, now), l.At)
		}
		rest(t, locks.WaitingInAll-len(locks.Waiting))
		_ = t.Flush()
	}
}

func rest(w io.Writer, n int) {
	if n > 0 {
		fmt.Fprintf(w, "and %d more\n", n)
	}
}

func age(l Lock, now time.Time) time.Duration { return now.Sub(l.Since).Round(time.Millisecond) }

func number(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// printable returns a text as it is, or quoted if it has something that a terminal would not print.
func printable(s string) string {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}

var _ http.Handler = (*Page)(nil)
