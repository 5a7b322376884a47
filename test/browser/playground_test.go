package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// queued waits until the queue is drawn with these services, in order.
func (p *page) queued(services string) {
	p.Helper()
	p.await(fmt.Sprintf(
		`[...document.querySelectorAll("#queue [data-by]")].map((x) => x.dataset.by).join("") === %q`, services))
}

// line makes A hold the lock, and B and C wait for it in this order.
func (p *page) line() {
	p.Helper()
	p.press("A", "lock")
	p.is("A", "held")
	p.press("B", "lock")
	p.queued("B")
	p.press("C", "lock")
	p.queued("BC")
}

func TestLockWaitAndRelease(t *testing.T) {
	p := open(t, light, "")
	p.press("A", "lock")
	p.is("A", "held")
	p.shows("#holder", "held by A")
	p.press("B", "lock")
	p.is("B", "waiting")
	p.queued("B")
	p.press("C", "lock")
	p.queued("BC")
	p.shows(card("A", ".belief"), "renewed 2")
	p.press("A", "write")
	p.shows("#balance", "50")
	p.press("A", "lock") // it says Unlock now
	p.is("B", "held")
	p.queued("C")
	p.shows("#log", "B reads a balance of 50")
	p.press("C", "lock") // Stop waiting
	p.is("C", "none")
	p.queued("")
	p.press("B", "lock")
	p.await(`document.getElementById("store").dataset.state === "free"`)
}

// The lease is seen to run down, and to be renewed: what the bar says falls by some, and rises again.
func TestTheLeaseRunsDownAndIsRenewed(t *testing.T) {
	p := open(t, light, "")
	p.press("A", "lock")
	left := `parseFloat(document.getElementById("left").textContent)`
	p.await(left + ` < 2.4`)
	p.await(left + ` > 2.6`)
	p.await(left + ` < 2.4`)
	bar := `document.querySelector("#store-bar span").getBoundingClientRect().width /
		document.getElementById("store-bar").clientWidth`
	if wide := value[float64](p, bar); wide < .4 || wide > 1 {
		t.Errorf("%.2f of the bar is filled; a renewed lease has between two thirds and all of its time left", wide)
	}
}

func TestKillTheHolder(t *testing.T) {
	p := open(t, light, "")
	p.press("A", "lock")
	p.is("A", "held")
	p.press("B", "lock")
	p.queued("B")
	killed := time.Now()
	p.press("A", "kill")
	p.is("A", "killed")
	if held := p.text("#holder"); held != "held by A" {
		t.Errorf("right after the holder's end the lock is %s", held)
	}
	p.is("B", "held")
	if took := time.Since(killed); took < time.Second || took > 10*time.Second {
		t.Errorf("the waiter got in after %v; a renewed lease of 3 s has 2 s to 3 s left", took)
	}
	p.press("A", "kill") // Start
	p.is("A", "none")
	p.press("A", "lock")
	p.queued("A")
	p.press("B", "lock")
	p.is("A", "held")
}

// A waiter that is killed leaves the queue, and one that is stopped does not hold up those behind it for long.
func TestAWaiterIsKilledAndAnotherPaused(t *testing.T) {
	p := open(t, light, "")
	p.line()
	p.press("B", "pause")
	p.is("B", "paused")
	p.press("A", "lock") // Unlock
	p.is("C", "held")
	p.press("B", "pause") // Resume
	p.is("B", "waiting")
	p.queued("B")
	p.press("B", "kill")
	p.queued("")
	p.press("C", "lock")
	p.await(`document.getElementById("store").dataset.state === "free"`)
}

func TestPauseTheHolder(t *testing.T) {
	for _, c := range []struct{ name, where, verdict, balance string }{
		{"without fencing", "", "overwrote", "50"},
		{"with fencing", "#fencing", "refused", "70"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := open(t, light, c.where)
			p.press("A", "lock")
			p.is("A", "held")
			p.press("B", "lock")
			p.queued("B")
			p.press("A", "pause")
			p.is("A", "paused")
			p.is("B", "held")
			if says := p.text(card("A", ".belief")); !strings.Contains(says, "believes to hold") {
				t.Errorf("the stopped holder's card says %q", says)
			}
			p.press("B", "write")
			p.shows("#balance", "70")
			p.press("B", "lock")
			p.is("B", "none")
			p.press("A", "pause") // Resume
			p.is("A", "lost")
			p.shows("#writes li:first-child .verdict", c.verdict)
			p.shows("#balance", c.balance)
		})
	}
}

// Each story goes on to its end by its button.
func TestStories(t *testing.T) {
	steps := map[string]int{"wait": 5, "kill": 4, "pause": 6, "fencing": 7}
	balance := map[string]string{"wait": "20", "kill": "100", "pause": "50", "fencing": "20"}
	for _, l := range []look{light, dark, phone} {
		for story, n := range steps {
			t.Run(l.name+"/"+story, func(t *testing.T) {
				p := open(t, l, "#"+story)
				p.shows("#next", "A locks")
				for step := range n {
					p.await(fmt.Sprintf(`document.querySelector("#dots li:nth-child(%d).now") &&
						document.getElementById("next").ariaDisabled !== "true"`, step+1))
					p.picture(fmt.Sprintf("%s-%d", story, step+1))
					if step < n-1 {
						p.do(chromedp.Click(chromedp.CSS("#next")))
					}
				}
				p.shows("#next", "Again")
				p.shows("#balance", balance[story])
			})
		}
	}
}

// All can be done by keys, and said aloud.
func TestKeyboardAndNames(t *testing.T) {
	p := open(t, light, "#kill")
	p.do(chromedp.Focus(chromedp.CSS(p.able("A", "lock"))), chromedp.KeyEvent(kb.Enter))
	p.is("A", "held")
	p.able("A", "lock")
	p.do(chromedp.KeyEvent(" "))
	p.is("A", "none")
	p.do(chromedp.Focus(chromedp.CSS("#fenced")), chromedp.KeyEvent(" "))
	p.shows("#fence-hint", "Refuses")
	unnamed := value[[]string](p, `[...document.querySelectorAll("button, input, select, [role]")].filter((x) =>
		!x.getAttribute("aria-label") && !x.getAttribute("aria-labelledby") && !x.textContent.trim() && !x.labels?.length &&
		x.id !== "log").map((x) => x.outerHTML)`)
	for _, x := range unnamed {
		t.Errorf("no name: %s", x)
	}
	if live := value[string](p, `document.getElementById("log").getAttribute("aria-live")`); live != "polite" {
		t.Errorf("the log is not announced: aria-live is %q", live)
	}
}

// Nothing is wider than a phone, and no text is too pale.
func TestPhoneAndContrast(t *testing.T) {
	for _, l := range []look{light, dark, phone} {
		t.Run(l.name, func(t *testing.T) {
			p := open(t, l, "#pause")
			p.line()
			p.press("A", "write")
			p.shows("#writes", "written")
			p.press("A", "pause")
			p.is("A", "paused")
			p.press("C", "kill")
			if wide := value[int64](p, `document.documentElement.scrollWidth`); wide > l.width {
				t.Errorf("the page is %d wide, the window %d", wide, l.width)
			}
			for _, x := range value[[]string](p, `[...document.querySelectorAll(".card *")].filter((x) => x.checkVisibility() &&
				(x.getBoundingClientRect().right > x.closest(".card").getBoundingClientRect().right ||
				x.matches("button") && x.scrollWidth > x.clientWidth)).map((x) => x.outerHTML)`) {
				t.Errorf("wider than its card: %s", x)
			}
			for _, x := range value[[]string](p, paleTexts) {
				t.Error(x)
			}
		})
	}
}

// paleTexts are the texts whose contrast with what is behind them is below 4.5, that of buttons which are off excepted.
const paleTexts = `(() => {
	const parts = (c) => c.match(/[\d.]+/g).map(Number);
	const light = (c) => parts(c).slice(0, 3).map((x) => x / 255)
		.map((x) => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4)
		.reduce((sum, x, i) => sum + x * [.2126, .7152, .0722][i], 0);
	const behind = (x) => {
		for (; x; x = x.parentElement) {
			const c = getComputedStyle(x).backgroundColor;
			if ((parts(c)[3] ?? 1) === 1) return c;
		}
		return "rgb(255, 255, 255)";
	};
	return [...document.body.querySelectorAll("*")]
		.filter((x) => x.checkVisibility() && !x.closest("[aria-disabled=true], .skip") &&
			[...x.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
		.map((x) => {
			const [a, b] = [light(getComputedStyle(x).color), light(behind(x))];
			return [(Math.max(a, b) + .05) / (Math.min(a, b) + .05), x];
		})
		.filter(([ratio]) => ratio < 4.5).map(([ratio, x]) => "contrast " + ratio.toFixed(2) + ": " + x.outerHTML);
})()`
