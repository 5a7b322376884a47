package redisproto

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// desk answers items, alone with their length and together with that and a hundred.
type desk struct {
	mu     sync.Mutex
	many   []int // how long each script for several was
	alone  []string
	failed error         // of scripts for several
	answer chan struct{} // nil, or they wait for it
}

func (d *desk) joint() *joint {
	return newJoint(func(_ context.Context, items []JointItem, out []JointReply) {
		d.mu.Lock()
		d.many = append(d.many, len(items))
		d.mu.Unlock()
		if d.answer != nil {
			<-d.answer
		}
		for i := range items {
			item := items[i].Lock
			switch {
			case d.failed != nil:
				out[i].Err = d.failed
			case strings.HasPrefix(item, "odd"):
				out[i].Value = askAlone
			default:
				out[i].Value = int64(100 + len(item))
			}
		}
	}, func(i JointItem) (int64, error) {
		item := i.Lock
		d.mu.Lock()
		d.alone = append(d.alone, item)
		d.mu.Unlock()
		if d.answer != nil {
			<-d.answer
		}
		return int64(len(item)), nil
	}, func(err error) bool { return strings.HasPrefix(err.Error(), "ERR") })
}

func (d *desk) send(items ...string) []*jointCall {
	var calls []*jointCall
	for _, item := range items {
		calls = append(calls, &jointCall{item: JointItem{Lock: item}})
	}
	d.joint().send(context.Background(), calls)
	return calls
}

func TestWhoIsAloneAsksAlone(t *testing.T) {
	var d desk
	if c := d.send("abc")[0]; c.value != 3 || c.err != nil || len(d.many) != 0 {
		t.Errorf("%d, %v, scripts for %v", c.value, c.err, d.many)
	}
}

func TestSeveralAreOneScriptAndTheOddOneAsksAlone(t *testing.T) {
	var d desk
	for i, c := range d.send("a", "odd one", "bb") {
		if want := []int64{101, 7, 102}[i]; c.value != want || c.err != nil {
			t.Errorf("%s: %d, %v; want %d", c.item.Lock, c.value, c.err, want)
		}
	}
	if fmt.Sprint(d.many, d.alone) != "[3] [odd one]" {
		t.Errorf("scripts for %v, alone %v", d.many, d.alone)
	}
}

func TestNoScriptIsForMoreThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := desk{answer: make(chan struct{})}
		j := d.joint()
		var all sync.WaitGroup
		const n = 3*jointMost + outboxMostSenders
		for range n {
			all.Go(func() {
				if _, err := j.do(cancellable(t), JointItem{Lock: "a"}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(d.answer)
		all.Wait()
		asked := len(d.alone)
		for _, many := range d.many {
			if asked += many; many > jointMost {
				t.Errorf("a script for %d", many)
			}
		}
		if asked != n || len(d.many) < 3 {
			t.Errorf("%d of %d were asked for, by %d scripts and %d alone", asked, n, len(d.many), len(d.alone))
		}
		j.close()
	})
}

// What the server refused has done nothing, so all ask alone; what came to nobody knows what, does not.
func TestAScriptThatIsRefusedIsAskedForOneByOne(t *testing.T) {
	d := desk{failed: errors.New("ERR no")}
	for _, c := range d.send("a", "bb") {
		if c.err != nil || c.value != int64(len(c.item.Lock)) {
			t.Errorf("%s: %d, %v", c.item.Lock, c.value, c.err)
		}
	}
	d = desk{failed: errors.New("connection lost")}
	for _, c := range d.send("a", "bb") {
		if c.err != d.failed {
			t.Errorf("%s: %v", c.item.Lock, c.err)
		}
	}
	if len(d.alone) != 0 {
		t.Errorf("%v asked again", d.alone)
	}
}

func TestACallOfSeveralCanBeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := desk{answer: make(chan struct{})}
		j := d.joint()
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		left := make(chan error, 1)
		for range 8 {
			all.Go(func() {
				if n, err := j.do(context.Background(), JointItem{Lock: "stays"}); err != nil || n != 105 && n != 5 {
					t.Errorf("%d, %v", n, err)
				}
			})
		}
		all.Go(func() { _, err := j.do(ctx, JointItem{Lock: "leaves!"}); left <- err })
		synctest.Wait()
		leave()
		behind := leftIn[int64](<-left)
		if behind == nil {
			t.Fatal("not left")
		}
		close(d.answer)
		if n, err := behind.Wait(); err != nil || n != 107 && n != 7 {
			t.Errorf("%d, %v", n, err)
		}
		all.Wait()
		j.close()
	})
}
