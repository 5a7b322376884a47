package browser

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// pages serves bin/site, the site that make docs builds.
func pages(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(root, "bin", "site")
	if _, err := os.Stat(filepath.Join(dir, "index.html")); err != nil {
		t.Fatalf("make docs builds the site that this test looks at: %v", err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	return server.URL
}

// What people type finds the guide, not the decision behind it.
func TestTheSearchFindsTheGuide(t *testing.T) {
	address := pages(t)
	p := openAt(t, light, address+"/index.html")
	for _, c := range []struct{ typed, page string }{
		{"cron", "how-to/jobs"},
		{"force unlock", "how-to/free-a-lock"},
		{"who holds", "how-to/free-a-lock"},
		{"WithWait", "reference/options"},
		{"ttl", "how-to/watchdog"},
		{"list locks", "how-to/free-a-lock"},
		{"elasticache", "reference/deployments"},
		{"stuck", "how-to/free-a-lock"},
		{"lost lock", "how-to/lost-lock"},
		{"several names", "how-to/lock-all"},
	} {
		p.do(chromedp.Navigate(address + "/index.html?q=" + url.QueryEscape(c.typed)))
		p.await(`/matching/.test(document.querySelector(".md-search-result__meta").textContent)`)
		first := value[string](p, `new URL(document.querySelector(".md-search-result__item > a").href).pathname`)
		if first != "/"+c.page+"/" {
			t.Errorf("%q finds %s first, not %s", c.typed, first, c.page)
		}
	}
}

// The first page has a story that runs.
func TestTheFirstPageTellsAStory(t *testing.T) {
	for _, l := range []look{light, phone} {
		t.Run(l.name, func(t *testing.T) {
			p := openAt(t, l, pages(t)+"/index.html")
			frame := `document.querySelector("iframe.playground").contentDocument`
			p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("iframe.playground").scrollIntoView()`))
			p.awaitInFrame(frame + `?.documentElement.dataset.ready`)
			p.awaitInFrame(frame + `.getElementById("next").getAttribute("aria-disabled") != "true"`)
			p.do(chromedp.Evaluate[chromedp.Void](frame + `.getElementById("next").click()`))
			p.awaitInFrame(frame + `.getElementById("holder").textContent == "held by A"`)
			p.picture("story")
			if cut := value[float64](p, `(() => { const d = `+frame+`.documentElement
				return Math.max(d.scrollHeight - d.clientHeight, d.scrollWidth - d.clientWidth) })()`); cut > 0 {
				t.Errorf("the story is %v px larger than its frame", cut)
			}
		})
	}
}

// Nothing in a page is cut off: tables and code fit, or scroll and show that they do.
func TestPagesFit(t *testing.T) {
	looks := []look{light, phone}
	if *pictures != "" {
		looks = append(looks, dark)
	}
	for _, l := range looks {
		t.Run(l.name, func(t *testing.T) {
			address := pages(t) // of its own: a browser keeps the scheme for an address
			p := openAt(t, l, address+"/index.html")
			for _, page := range pagesIn(t) {
				p.do(chromedp.Navigate(address + "/" + page))
				p.picture("page-" + strings.Trim(strings.ReplaceAll(page, "/", "-"), "-"))
				for _, wrong := range value[[]string](p, fits) {
					t.Errorf("/%s: %s", page, wrong)
				}
			}
		})
	}
}

// fits names what does not fit into a page, and shows no sign that it scrolls. A program has to fit into a wide window.
const fits = `(() => {
	const wrong = []
	if (document.documentElement.scrollWidth > innerWidth) wrong.push("the page is wider than the window")
	for (const x of document.querySelectorAll(".md-typeset__scrollwrap, pre > code")) {
		const shown = getComputedStyle(x).backgroundImage != "none"
		const program = x.closest(".language-go, .language-sh") && innerWidth > 1000
		if (x.scrollWidth > x.clientWidth && (program || !shown))
			wrong.push(x.scrollWidth + " of " + x.clientWidth + " px: " + x.textContent.trim().slice(0, 60))
	}
	return wrong
})()`

// pagesIn returns the paths of the site's pages, without the decisions and the playground, which is a page of its own.
func pagesIn(t *testing.T) (all []string) {
	t.Helper()
	dir := os.DirFS(filepath.Join(root, "bin", "site"))
	err := fs.WalkDir(dir, ".", func(path string, _ fs.DirEntry, err error) error {
		if path == "decisions" || path == "playground" {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, "index.html") {
			all = append(all, strings.TrimSuffix(path, "index.html"))
		}
		return err
	})
	if err != nil || len(all) < 20 {
		t.Fatalf("%d pages: %v", len(all), err)
	}
	return all
}
