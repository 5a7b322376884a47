package mortise

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
)

func TestWhatIsToBeGivenBackIsSentOnceThoughTheProcessStoodStillInShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(memory.New())
		must(t, err)
		p := &repetition{client: c, send: func() bool { return false }, began: c.now(), until: never, every: 50 * time.Millisecond}
		time.Sleep(2 * time.Second)

		c.mu.Lock()
		c.shut, c.shutAt, c.running = true, p.began, 1
		for n, want := range []struct{ jobs, running int }{{1, 1}, {1, 0}} {
			p.fire(c.now(), new(effects))
			if len(c.sched.jobs) != want.jobs || int(c.running) != want.running {
				t.Errorf("due for the %d. time: %d to be sent, %d running; want %+v", n+1, len(c.sched.jobs), c.running, want)
			}
		}
		c.sched.jobs, c.shut, c.running = nil, false, 0
		c.mu.Unlock()
		must(t, c.Close())
	})
}
