// Package console is a page that shows the locks of a store: who holds each, for how long, and who waits. It is an
// [http.Handler], to be mounted beside pprof:
//
//	mux.Handle("/debug/locks/", console.New(locks, console.Options{}))
//
// What it shows is as secret as the names of locks and hosts: let only operators reach it.
package console

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/mortise-go/mortise"
)

// Store is what a console needs of a [mortise.Client].
type Store interface {
	Locks(ctx context.Context, prefix string) iter.Seq2[mortise.LockInfo, error]
	Inspect(ctx context.Context, name string) (mortise.LockInfo, error)
	ForceUnlock(ctx context.Context, name, owner string) (bool, error)
}

// Options are those of [New]. The zero value shows, and frees nothing.
type Options struct {
	// Every is the time between two looks at the store while a page is open; 500 ms if zero.
	Every time.Duration
	// Most is the number of locks that the list shows, the oldest; 200 if zero.
	Most int
	// Prefix is that of the client ([mortise.WithPrefix]).
	Prefix string
	// About says which store the pages are about, if it is not empty. Each viewer sees it: leave passwords out.
	About string
	// Authorize permits that a request frees the lock of this name, and says by whom, for the log. An error refuses
	// it. If Authorize is nil, the console frees nothing. Requests from other sites are refused before.
	Authorize func(r *http.Request, name string) (by string, err error)
	// Logger gets a line for each lock that is freed, or is not; [slog.Default] if nil.
	Logger *slog.Logger
}

// Handler serves the pages. A request is known by the last element of its path: it works below any path that ends
// with a slash, also behind [http.StripPrefix].
type Handler struct {
	locks   Store
	o       Options
	feeds   feeds
	done    context.Context
	end     context.CancelFunc
	protect http.CrossOriginProtection
}

// The number of locks whose pages are open at the same time is bounded; many viewers may look at each.
const mostFeeds = 100

// New returns a console for the locks of a client. While no page is open it asks the store for nothing. All pages
// with the list share one look at the store, all pages of a lock another.
//
// Cost: a [mortise.Client.Locks] every 500 ms while a list is open, and less often if it takes longer than 125 ms: it
// keeps a connection busy for a fifth of the time at most. For each lock whose page is open, for at most 99, one
// [mortise.Client.Inspect] every 500 ms.
func New(locks Store, o Options) *Handler {
	if o.Every <= 0 {
		o.Every = 500 * time.Millisecond
	}
	if o.Most <= 0 {
		o.Most = 200
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	h := &Handler{locks: locks, o: o}
	h.done, h.end = context.WithCancel(context.Background())
	h.feeds = feeds{every: o.Every, most: mostFeeds, by: map[string]*feed{}}
	return h
}

// Close ends the streams of open pages, which a server's Shutdown would wait for:
//
//	server.RegisterOnShutdown(handler.Close)
func (h *Handler) Close() {
	h.end()
	h.feeds.close()
}

//go:embed assets
var files embed.FS

var (
	pages  = template.Must(template.ParseFS(files, "assets/*.html"))
	assets = map[string]string{
		"console.css": "text/css; charset=utf-8",
		"console.js":  "text/javascript; charset=utf-8",
		"icon.svg":    "image/svg+xml",
	}
)

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin") // names are in addresses
	header.Set("Cache-Control", "no-store")
	last := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	if last == "unlock" {
		if h.o.Authorize == nil {
			http.NotFound(w, r)
			return
		}
		h.unlock(w, r)
		return
	}
	if r.Method != http.MethodGet && (r.Method != http.MethodHead || last == "events") {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	switch last {
	case "":
		h.page(w, http.StatusOK, "list.html", map[string]any{"Most": h.o.Most, "Prefix": h.o.Prefix, "About": h.o.About})
	case "lock":
		h.lock(w, r)
	case "events":
		h.events(w, r)
	default:
		h.asset(w, r, last)
	}
}

func (h *Handler) page(w http.ResponseWriter, status int, name string, data any) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if err := pages.ExecuteTemplate(w, name, data); err != nil {
		h.o.Logger.Debug("console: a page was not sent", "error", err)
	}
}

func (h *Handler) asset(w http.ResponseWriter, r *http.Request, name string) {
	kind, ok := assets[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	b, err := files.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // it is part of the program
	}
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256(b))
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Write(b)
}

// feed joins the feed of a lock, or of the list if the name is empty.
func (h *Handler) feed(name string) (*feed, func()) {
	return h.feeds.join(name, func() look {
		if name == "" {
			return (&list{locks: h.locks, most: h.o.Most}).look
		}
		return (&single{locks: h.locks, name: name}).look
	})
}

// lock is the page of one lock, with its state at that time.
func (h *Handler) lock(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	if name == "" {
		http.Redirect(w, r, "./", http.StatusSeeOther)
		return
	}
	data := map[string]any{"Name": name, "Prefix": h.o.Prefix, "About": h.o.About, "CanUnlock": h.o.Authorize != nil,
		"Events": "events?" + url.Values{"name": {name}}.Encode(), "Done": said[r.URL.Query().Get("done")]}
	f, leave := h.feed(name)
	if f == nil {
		http.Error(w, "too many locks are looked at; close a page", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	text, _, changed := f.newest()
	if text == nil {
		select {
		case <-changed:
			text, _, _ = f.newest()
		case <-time.After(5 * time.Second): // the page comes without a state, and gets it later
		case <-r.Context().Done():
			return
		}
	}
	var s state
	if text != nil && json.Unmarshal(text, &s) == nil && len(s.Locks) > 0 {
		data["Lock"] = s.Locks[0]
	}
	data["Error"] = s.Error
	h.page(w, http.StatusOK, "lock.html", data)
}

// A stream writes something at least every beat, so that what is between it and the viewer keeps it open; a viewer
// that does not take it for patience is cut off. Its browser connects again.
const (
	beat     = 15 * time.Second
	patience = 10 * time.Second
)

// events sends the newest state of a feed, with its age in milliseconds, and each newer one, until the viewer leaves.
func (h *Handler) events(w http.ResponseWriter, r *http.Request) {
	f, leave := h.feed(r.URL.Query().Get("name"))
	if f == nil {
		http.Error(w, "too many locks are looked at; close a page", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would collect the events
	control := http.NewResponseController(w)
	beats := time.NewTicker(beat)
	defer beats.Stop()
	text := "retry: 1000\n\n"
	var sent []byte
	for {
		control.SetWriteDeadline(time.Now().Add(patience)) // not every writer has one
		if _, err := w.Write([]byte(text)); err != nil || control.Flush() != nil {
			return
		}
		newest, at, changed := f.newest()
		if len(newest) > 0 && (len(sent) == 0 || &newest[0] != &sent[0]) {
			sent, text = newest, fmt.Sprintf("data: %d\ndata: %s\n\n", time.Since(at).Milliseconds(), newest)
			continue
		}
		select {
		case <-changed:
			text = ""
		case <-beats.C:
			text = ":\n\n"
		case <-r.Context().Done():
			return
		case <-h.done.Done():
			return
		}
	}
}
