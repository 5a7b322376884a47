package browser

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var pictures = flag.String("pictures", "", "`directory` to write pictures to")

const (
	root = "../.."
	// patience bounds every wait for something that must happen; the first start compiles the page's program.
	patience = time.Minute
)

// site is the page as make playground-build makes it, and the browser that all tests share.
var site struct {
	*httptest.Server
	browser context.Context
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "playground")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	build := exec.Command("make", "--no-print-directory", "-C", root, "playground-build", "PLAYGROUND="+dir)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	site.Server = httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer site.Close()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.Flag("lang", "en"))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	defer cancel()
	var stop context.CancelFunc
	site.browser, stop = chromedp.NewContext(ctx)
	defer stop()
	if err := chromedp.Do(site.browser); err != nil {
		fmt.Fprintln(os.Stderr, "the tests need Chromium, Debian's package chromium:", err)
		return 1
	}
	return m.Run()
}

// look is how a page is looked at.
type look struct {
	name          string
	width, height int64
	dark, calm    bool
}

var (
	light = look{name: "light", width: 1280, height: 900}
	dark  = look{name: "dark", width: 1280, height: 900, dark: true, calm: true}
	phone = look{name: "phone", width: 360, height: 780}
)

// page is a tab with the playground. What it asks of other servers, and what it says on its console, fails the test.
type page struct {
	*testing.T
	ctx  context.Context
	look look
	// server is what the addresses of the page's requests begin with.
	server string

	mu    sync.Mutex
	wrong []string
}

// open opens the playground with a lease of 3 s; where is added to its address.
func open(t *testing.T, l look, where string) *page {
	t.Helper()
	p := openAt(t, l, site.URL+"/?lease=3000"+where)
	p.await(`document.documentElement.dataset.ready`)
	return p
}

// openAt opens a page by its address.
func openAt(t *testing.T, l look, address string) *page {
	t.Helper()
	t.Parallel()
	ctx, cancel := chromedp.NewContext(site.browser)
	t.Cleanup(cancel)
	p := &page{T: t, ctx: ctx, look: l, server: address[:strings.LastIndex(address, "/")]}
	if err := chromedp.Listen(ctx, p.heard); err != nil {
		t.Fatal(err)
	}
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "light"}}
	if l.dark {
		features[0].Value = "dark"
	}
	if l.calm {
		features = append(features, &emulation.MediaFeature{Name: "prefers-reduced-motion", Value: "reduce"})
	}
	send(p, network.Enable, network.EnableParams{})
	send(p, log.Enable, cdp.Empty{})
	send(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
	p.do(chromedp.EmulateViewport(l.width, l.height), chromedp.Navigate(address))
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, w := range p.wrong {
			t.Error(w)
		}
	})
	return p
}

func (p *page) heard(event any) {
	var wrong string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		wrong = fmt.Sprintf("exception: %s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
	case *runtime.EventConsoleAPICalled:
		wrong = fmt.Sprintf("console.%s:", e.Type)
		for _, a := range e.Args {
			wrong += " " + string(a.Value)
		}
	case *log.EventEntryAdded:
		wrong = fmt.Sprintf("browser: %s %s", e.Entry.Text, e.Entry.URL)
	case *network.EventRequestWillBeSent:
		if u := e.Request.URL; !strings.HasPrefix(u, p.server) && !strings.HasPrefix(u, "data:") {
			wrong = "request to another server: " + u
		}
	}
	if wrong != "" {
		p.mu.Lock()
		p.wrong = append(p.wrong, wrong)
		p.mu.Unlock()
	}
}

// send runs a command of the browser's protocol.
func send[P, R any](p *page, c cdp.Command[P, R], params P) {
	p.Helper()
	if _, err := chromedp.Call(p.ctx, c, params); err != nil {
		p.Fatal(err)
	}
}

func (p *page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.Fatalf("%v\n%s", err, p.said())
	}
}

// value is what an expression comes to.
func value[T any](p *page, expression string) T {
	p.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
	return v
}

// await waits until the page changes so that an expression is true.
func (p *page) await(expression string) {
	p.Helper()
	p.poll(expression, chromedp.WithPollingMutation())
}

// awaitInFrame waits until a frame in the page changes so that an expression is true.
func (p *page) awaitInFrame(expression string) {
	p.Helper()
	p.poll(expression, chromedp.WithPollingInterval(20*time.Millisecond))
}

func (p *page) poll(expression string, how chromedp.PollOption) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	poll := chromedp.Poll[chromedp.Void](expression, how, chromedp.WithPollingTimeout(patience))
	if err := chromedp.Do(ctx, poll); err != nil {
		p.Fatalf("not so within %v: %s: %v\n%s", patience, expression, err, p.said())
	}
}

// said is what the page says now.
func (p *page) said() string {
	ctx, cancel := context.WithTimeout(p.ctx, 5*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// card is the selector of a service's part.
func card(service, part string) string { return fmt.Sprintf(`[data-service="%s"] %s`, service, part) }

// press presses a service's button once it can be pressed.
func (p *page) press(service, role string) {
	p.Helper()
	p.do(chromedp.Click(chromedp.CSS(p.able(service, role))))
}

// able waits until a button of a service is on, as none is between the service's acquiring and its reading, and returns
// its selector.
func (p *page) able(service, role string) string {
	p.Helper()
	button := card(service, fmt.Sprintf(`[data-role=%s]:not([aria-disabled="true"])`, role))
	p.await(fmt.Sprintf("document.querySelector(%q)", button))
	return button
}

// is waits until a service's card shows a state.
func (p *page) is(service, state string) {
	p.Helper()
	p.await(fmt.Sprintf(`document.querySelector('.service[data-service="%s"]').dataset.state === %q`, service, state))
}

// shows waits until an element has a text in it.
func (p *page) shows(selector, text string) {
	p.Helper()
	p.await(fmt.Sprintf(`document.querySelector(%q).textContent.includes(%q)`, selector, text))
}

// text is what an element says now.
func (p *page) text(selector string) string {
	p.Helper()
	return value[string](p, fmt.Sprintf(`document.querySelector(%q).textContent`, selector))
}

// picture writes what the page looks like, if pictures are wanted.
func (p *page) picture(name string) {
	p.Helper()
	if *pictures == "" {
		return
	}
	png, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		p.Fatal(err)
	}
	if err := os.MkdirAll(*pictures, 0o755); err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*pictures, p.look.name+"-"+name+".png"), png, 0o644); err != nil {
		p.Fatal(err)
	}
}
