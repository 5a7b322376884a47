package browser

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/console"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/redisgo"
)

// consoleFor serves a console of a Redis through a gate, and returns another client of the Redis.
func consoleFor(t *testing.T, o console.Options) (address string, gate *redistest.Gate, locks *mortise.Client) {
	t.Helper()
	redisAt := redistest.Start(t).Addr()
	gate = redistest.NewGate(t, redisAt)
	open := func(addr string) *mortise.Client {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		c := check.Value(mortise.New(redisgo.New(rdb))).In(t)
		t.Cleanup(func() { c.Close(); rdb.Close() })
		return c
	}
	h := console.New(open(gate.Addr()), o)
	mux := http.NewServeMux()
	mux.Handle("/debug/locks/", h)
	s := httptest.NewServer(mux)
	t.Cleanup(func() { h.Close(); s.Close() })
	return s.URL + "/debug/locks/", gate, open(redisAt)
}

// permits permits all.
func permits(*http.Request, string) (string, error) { return "tester", nil }

// holds takes a lock, which the test's end releases: Close waits for leases.
func holds(t *testing.T, locks *mortise.Client, name string, opts ...mortise.Option) *mortise.Lease {
	t.Helper()
	lease := check.Value(locks.Lock(t.Context(), name, opts...)).In(t)
	t.Cleanup(func() { lease.Unlock(context.Background()) })
	return lease
}

// waits begins to wait for a lock; a waiter that gets it releases it.
func waits(t *testing.T, locks *mortise.Client, name string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if lease, err := locks.Lock(ctx, name, mortise.Fair()); err == nil {
			lease.Unlock(context.Background())
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// seenWithin is how soon a page must show what happened elsewhere.
const seenWithin = time.Second

func TestConsoleSeesALockAWaiterAndAnOutage(t *testing.T) {
	address, gate, locks := consoleFor(t, console.Options{})
	p := openAt(t, light, address)
	p.shows("#none", "No lock is held")
	lease := holds(t, locks, "orders:42", mortise.Fair())
	taken := time.Now()
	p.shows("#locks", "orders:42")
	check.ErrorIf(t, time.Since(taken) > seenWithin, "the page shows a lock after %v", time.Since(taken))
	waits(t, locks, "orders:42")
	p.await(`document.querySelector("#locks tbody tr td:last-child").textContent === "1"`)
	holds(t, locks, "<b>evil</b>")
	p.shows("#locks", "<b>evil</b>")
	p.do(chromedp.Focus(chromedp.CSS("#filter")), chromedp.KeyEvent("ORDERS"))
	p.shows("#count", "1 shown")
	gate.Down()
	p.shows("#problem", "does not answer")
	p.shows("#locks", "orders:42")
	gate.Up()
	p.await(`document.getElementById("problem").hidden`)
	check.Done(t, lease.Unlock(t.Context()))
	p.shows("#none", "None of them matches")
}

func TestConsoleFreesALockWherePermitted(t *testing.T) {
	for name, o := range map[string]console.Options{"permitted": {Authorize: permits}, "not permitted": {}} {
		t.Run(name, func(t *testing.T) {
			address, _, locks := consoleFor(t, o)
			holds(t, locks, `a "b" <i>&`)
			p := openAt(t, light, address)
			p.shows("#locks", `a "b" <i>&`)
			p.do(chromedp.Click(chromedp.CSS("#locks a")), chromedp.WaitVisible(chromedp.CSS(".holder")))
			p.shows(".holder", "held by")
			if o.Authorize == nil {
				p.await(`document.getElementById("unlock") === null`)
				return
			}
			p.do(chromedp.Focus(chromedp.CSS("#unlock [type=checkbox]")), chromedp.KeyEvent(" "),
				chromedp.Click(chromedp.CSS("#unlock button")), chromedp.WaitVisible(chromedp.CSS("#done")))
			p.shows("#done", "was freed")
			p.await(`document.querySelector(".holder").textContent === "free" && document.getElementById("unlock").hidden`)
			info := check.Value(locks.Inspect(t.Context(), `a "b" <i>&`)).In(t)
			check.ErrorIf(t, info.Held, "held by %s", info.Owner)
		})
	}
}

// Nothing is wider than a phone, no text is too pale, and each control has a name.
func TestConsoleFitsAndIsReadable(t *testing.T) {
	address, _, locks := consoleFor(t, console.Options{Authorize: permits})
	for _, name := range []string{"orders:42", "reports:nightly:of-a-name-longer-than-a-phone-is-wide-0123456789"} {
		holds(t, locks, name, mortise.Fair(), mortise.Fenced())
	}
	waits(t, locks, "orders:42")
	for _, l := range []look{light, dark, phone} {
		for _, page := range []string{"", "lock?" + url.Values{"name": {"orders:42"}}.Encode()} {
			t.Run(l.name+" "+page, func(t *testing.T) {
				p := openAt(t, l, address+page)
				p.shows("#live", "live")
				p.shows("main", "orders:42")
				if page == "" {
					p.shows("#locks", "reports")
				} else {
					p.await(`document.querySelectorAll("#queue li").length === 1`)
				}
				p.picture("console" + map[bool]string{true: "-list", false: "-lock"}[page == ""])
				wide := value[int64](p, `document.documentElement.scrollWidth`)
				check.ErrorIf(t, wide > l.width, "the page is %d wide, the window %d", wide, l.width)
				for _, x := range value[[]string](p, paleTexts) {
					t.Error(x)
				}
				for _, x := range value[[]string](p, `[...document.querySelectorAll("a, button, input:not([type=hidden]), [role]")]
					.filter((x) => !x.getAttribute("aria-label") && !x.textContent.trim() && !x.labels?.length && x.id !== "problem")
					.map((x) => x.outerHTML)`) {
					t.Errorf("no name: %s", x)
				}
			})
		}
	}
}

// The pictures of the guide, docs/how-to/console.md: `make pictures` writes them.
func TestTheConsoleAsTheGuideShowsIt(t *testing.T) {
	address, _, locks := consoleFor(t, console.Options{Authorize: permits, About: "redis://locks.internal:6379"})
	holds(t, locks, "orders:42", mortise.Fair(), mortise.Fenced())
	holds(t, locks, "orders:43")
	holds(t, locks, "reports:nightly", mortise.WithLease(10*time.Minute))
	reads := check.Value(locks.RW().Read.Lock(t.Context(), "stock:17")).In(t)
	t.Cleanup(func() { reads.Unlock(context.Background()) })
	for range 3 {
		waits(t, locks, "orders:42")
	}
	for of, path := range map[string]string{"list": "", "lock": "lock?" + url.Values{"name": {"orders:42"}}.Encode()} {
		t.Run(of, func(t *testing.T) {
			p := openAt(t, look{name: "console", width: 900, height: 480}, address+path)
			p.shows("#live", "live")
			if of == "list" {
				p.await(`document.querySelectorAll("#locks tbody tr").length === 4`)
				p.shows("#locks", "3 s")
				p.shows("#locks", "1 reader")
			} else {
				p.await(`document.querySelectorAll("#queue li").length === 3`)
			}
			p.picture(of)
		})
	}
}
