//go:build linux

package delegation

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/mortise-go/mortise/test/internal/harness"
)

// witness knows which services are inside a lock, by what the services tell it from within: a stack of visits,
// for a service that enters must have been called by the innermost, or find none. A service that enters
// otherwise is a violation.
type witness struct {
	t      testing.TB
	server *httptest.Server

	mu     sync.Mutex
	inside []visit
	ended  map[string]bool // visits that are over, with their processes too
	parked map[string]*parking
	come   chan struct{} // closed, and made anew, when a service came or left
	total  int
	deep   int // how many were inside at most
}

type visit struct{ id, parent, process string }

type parking struct {
	come  chan struct{}
	leave chan struct{}
}

func newWitness(t testing.TB) *witness {
	w := &witness{t: t, ended: make(map[string]bool), parked: make(map[string]*parking), come: make(chan struct{})}
	w.server = httptest.NewServer(w)
	t.Cleanup(w.server.Close)
	return w
}

func (w *witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	v := visit{r.FormValue("visit"), r.FormValue("parent"), r.FormValue("process")}
	switch r.URL.Path {
	case "/in":
		w.in(v)
	case "/out":
		w.out(v)
	case "/park":
		p := w.parking(v.id)
		w.mu.Lock()
		select {
		case <-p.come:
		default:
			close(p.come)
		}
		w.mu.Unlock()
		select {
		case <-p.leave:
		case <-r.Context().Done():
		}
	default:
		http.NotFound(rw, r)
	}
}

func (w *witness) in(v visit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.inside); n > 0 && w.inside[n-1].id != v.parent {
		w.t.Errorf("%+v came in under %q, while %+v are inside", v, v.parent, w.inside)
	} else if n == 0 && v.parent != "" && !w.ended[v.parent] {
		w.t.Errorf("%+v came in under one that was never inside", v)
	}
	w.inside = append(w.inside, v)
	w.total++
	w.deep = max(w.deep, len(w.inside))
	w.changed()
}

func (w *witness) out(v visit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.inside, func(o visit) bool { return o.id == v.id })
	if i < 0 {
		w.t.Errorf("%+v left, but was not inside: %+v", v, w.inside)
		return
	}
	w.inside = slices.Delete(w.inside, i, i+1)
	w.ended[v.id] = true
	w.changed()
}

// died says that a process was killed: it is nowhere any more.
func (w *witness) died(process string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inside = slices.DeleteFunc(w.inside, func(v visit) bool {
		w.ended[v.id] = w.ended[v.id] || v.process == process
		return v.process == process
	})
	w.changed()
}

func (w *witness) changed() {
	close(w.come)
	w.come = make(chan struct{})
}

func (w *witness) parking(id string) *parking {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.parked[id]
	if p == nil {
		p = &parking{make(chan struct{}), make(chan struct{})}
		w.parked[id] = p
	}
	return p
}

// parkedNow waits until the visit stands still inside.
func (w *witness) parkedNow(id string) {
	w.t.Helper()
	await(w.t, id+" stands inside", w.parking(id).come)
}

// letGo has it go on.
func (w *witness) letGo(id string) { close(w.parking(id).leave) }

// until waits until what is inside is as ok says.
func (w *witness) until(what string, ok func(inside []visit) bool) {
	w.t.Helper()
	for {
		w.mu.Lock()
		done, come := ok(w.inside), w.come
		w.mu.Unlock()
		if done {
			return
		}
		await(w.t, what, come)
	}
}

func (w *witness) seen() (total, deep int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total, w.deep
}

// The witness is none unless it sees what must not be.
func TestTheWitnessSeesTwoAtOnce(t *testing.T) {
	for name, act := range map[string]func(*witness){
		"two strangers": func(w *witness) { w.in(visit{id: "a"}); w.in(visit{id: "b"}) },
		"two of one caller": func(w *witness) {
			w.in(visit{id: "a"})
			w.in(visit{id: "b", parent: "a"})
			w.in(visit{id: "c", parent: "a"})
		},
		"under one that left": func(w *witness) {
			w.in(visit{id: "a"})
			w.in(visit{id: "b", parent: "a"})
			w.out(visit{id: "a"})
			w.in(visit{id: "c", parent: "a"})
		},
		"each under the innermost": func(w *witness) {
			w.in(visit{id: "a"})
			w.in(visit{id: "b", parent: "a"})
			w.in(visit{id: "c", parent: "b"})
			w.out(visit{id: "c"})
			w.out(visit{id: "a"})
			w.out(visit{id: "b"})
		},
		"under none":          func(w *witness) { w.in(visit{id: "b", parent: "a"}) },
		"left without coming": func(w *witness) { w.out(visit{id: "b"}) },
	} {
		f := &failures{TB: t}
		w := &witness{t: f, ended: make(map[string]bool), come: make(chan struct{})}
		act(w)
		fine := name == "each under the innermost"
		harness.ErrorIf(t, fine != (len(f.said) == 0) || len(f.said) > 1 || fine && w.deep != 3, "%s: %v, %d deep",
			name, f.said, w.deep)
	}
}

type failures struct {
	testing.TB
	said []string
}

func (f *failures) Errorf(format string, args ...any) {
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

// isNow tells whether the visit is inside.
func (w *witness) isNow(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.inside, func(v visit) bool { return v.id == id })
}
