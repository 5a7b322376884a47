package lockz_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/middleware/lockz"
	"github.com/mortise-go/mortise/quorum"
	"github.com/mortise-go/mortise/semaphore"
)

func client(t *testing.T, s *memory.Store, p *lockz.Page) *mortise.Client {
	t.Helper()
	c, err := mortise.New(s, mortise.WithObserver(p.Observer()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// here returns the file and the line of its caller, and a function of the test's.
func here(t *testing.T, below int) string {
	t.Helper()
	_, file, line, _ := runtime.Caller(1)
	return fmt.Sprintf("%s:%d ", file, line+below)
}

func get(t *testing.T, p *lockz.Page, query string) string {
	t.Helper()
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/lockz"+query, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", query, w.Code, w.Body)
	}
	return w.Body.String()
}

// uncomparable is a context that is no key of a map.
type uncomparable struct {
	context.Context
	_ []int
}

func TestThePageHasWhatIsHeldAndWaitedForAndWhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := lockz.New(), memory.New()
		a, b := client(t, s, p), client(t, s, p)
		ctx := t.Context()
		heldAt := here(t, 1)
		held, err := a.Lock(ctx, "orders:1", mortise.Fenced())
		if err != nil {
			t.Fatal(err)
		}
		again, err := a.Lock(held.Context(), "orders:1", mortise.Fenced())
		if err != nil {
			t.Fatal(err)
		}
		waitsAt := here(t, 4)
		got := make(chan *mortise.Lease, 2)
		for _, ctx := range []context.Context{ctx, uncomparable{Context: ctx}} {
			go func() {
				l, err := b.Lock(ctx, "orders:1")
				if err != nil {
					t.Error(err)
				}
				got <- l
			}()
		}
		gone, leave := context.WithCancel(ctx)
		go func() { _, _ = b.RW().Read.Lock(gone, "x\n\x1b[2J") }()
		reads, err := b.RW().Write.Lock(ctx, "other")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = latch.New(a, "latch").Wait(gone) }()
		if err := semaphore.NewCounting(a, "count").AddPermits(ctx, 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(90 * time.Second)

		all := p.Locks("")
		if all.HeldInAll != 4 || all.WaitingInAll != 2 {
			t.Fatalf("%d are held, %d wait: %+v", all.HeldInAll, all.WaitingInAll, all)
		}
		first := p.Locks("orders:")
		if len(first.Held) != 2 || len(first.Waiting) != 2 {
			t.Fatalf("with a prefix: %+v", first)
		}
		l := first.Held[0]
		if l.Name != "orders:1" || l.Kind != "lock" || l.Holds != 1 || l.Token != held.Token() || l.Owner == "" ||
			time.Since(l.Since) != 90*time.Second || !strings.HasPrefix(l.At, heldAt) || !strings.Contains(l.At, "lockz_test.") {
			t.Errorf("it is held: %+v, want at %s", l, heldAt)
		}
		if first.Held[1].Holds != 2 {
			t.Errorf("the re-entry: %+v", first.Held[1])
		}
		for _, w := range first.Waiting {
			if w.Name != "orders:1" || !strings.HasPrefix(w.At, waitsAt) || w.Owner != "" {
				t.Errorf("it waits: %+v, want at %s", w, waitsAt)
			}
		}
		text := get(t, p, "")
		for _, part := range []string{
			"holds 4, waits for 2\n", "\nHELD", "orders:1", "1m30s", heldAt, "\nWAITS FOR", waitsAt, `"x\n\x1b[2J"`,
		} {
			if !strings.Contains(text, part) {
				t.Errorf("%q is missing in\n%s", part, text)
			}
		}
		if strings.ContainsRune(text, 0x1b) {
			t.Errorf("a control character: %q", text)
		}
		var read lockz.Locks
		if err := json.Unmarshal([]byte(get(t, p, "?format=json&prefix=orders:")), &read); err != nil || len(read.Held) != 2 {
			t.Errorf("as JSON: %+v, %v", read, err)
		}

		leave()
		for _, l := range []*mortise.Lease{again, held, reads} {
			if err := l.Unlock(ctx); err != nil {
				t.Error(err)
			}
		}
		for range 2 {
			if err := (<-got).Unlock(ctx); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if all := p.Locks("x"); all.HeldInAll > 1 || all.WaitingInAll > 0 {
			t.Errorf("left: %+v", all)
		}
		s.Flush() // what is left is lost
		time.Sleep(time.Minute)
		synctest.Wait()
		if all := p.Locks(""); all.HeldInAll+all.WaitingInAll != 0 {
			t.Errorf("left: %+v", all)
		}
	})
}

// A quorum asks its stores on goroutines of its own: the place is that of the user's call.
func TestALeaseOfAQuorumHasThePlaceOfItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := lockz.New()
		var clients []*mortise.Client
		for range 3 {
			clients = append(clients, client(t, memory.New(), p))
		}
		q, err := quorum.New(clients...)
		if err != nil {
			t.Fatal(err)
		}
		at := here(t, 1)
		l, err := q.Lock(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		held := p.Locks("").Held
		if len(held) != 3 {
			t.Fatalf("held: %+v", held)
		}
		for _, x := range held {
			if !strings.HasPrefix(x.At, at) {
				t.Errorf("held at %s, want %s", x.At, at)
			}
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := p.Locks("").HeldInAll; n != 0 {
			t.Errorf("%d are left", n)
		}
	})
}

func TestAPageListsAThousandAndCountsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := lockz.New()
		c := client(t, memory.New(), p)
		for i := range 1001 {
			if _, err := c.Lock(t.Context(), fmt.Sprint("n", i)); err != nil {
				t.Fatal(err)
			}
		}
		if text := get(t, p, ""); !strings.Contains(text, "and 1 more\n") || strings.Count(text, "\n") != 1004 {
			t.Errorf("%d lines, the last: %s", strings.Count(text, "\n"), text[len(text)-40:])
		}
	})
}

func TestAPageRefusesOtherMethodsAndFormats(t *testing.T) {
	for target, want := range map[string]int{
		"POST /":            http.StatusMethodNotAllowed,
		"GET /?format=yaml": http.StatusBadRequest,
		"HEAD /":            http.StatusOK,
	} {
		method, path, _ := strings.Cut(target, " ")
		w := httptest.NewRecorder()
		lockz.New().ServeHTTP(w, httptest.NewRequest(method, path, nil))
		if w.Code != want {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
}
