package batcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mortise-go/mortise/internal/redistest/check"
)

// desk answers items, alone with their length and together with that and a hundred.
type desk struct {
	mu     sync.Mutex
	many   []int // how long each script for several was
	alone  []string
	failed error         // of scripts for several
	answer chan struct{} // nil, or they wait for it
}

const (
	most     = 64
	askAlone = -2
)

type reply struct {
	Value int64
	Err   error
}

func (d *desk) merger() *Merger[string, reply] {
	return NewMerger(Sender[string, reply]{
		Most: most,
		Many: func(_ context.Context, items []string, out []reply) {
			d.mu.Lock()
			d.many = append(d.many, len(items))
			d.mu.Unlock()
			if d.answer != nil {
				<-d.answer
			}
			for i, item := range items {
				switch {
				case d.failed != nil:
					out[i].Err = d.failed
				case strings.HasPrefix(item, "odd"):
					out[i].Value = askAlone
				default:
					out[i].Value = int64(100 + len(item))
				}
			}
		},
		One: func(item string) (int64, error) {
			d.mu.Lock()
			d.alone = append(d.alone, item)
			d.mu.Unlock()
			if d.answer != nil {
				<-d.answer
			}
			return int64(len(item)), nil
		},
		Again: func(value int64, err error) bool {
			return value == askAlone || err != nil && strings.HasPrefix(err.Error(), "ERR")
		},
	})
}

func (d *desk) send(items ...string) []*item[string] {
	var calls []*item[string]
	for _, i := range items {
		calls = append(calls, &item[string]{item: i})
	}
	d.merger().deliver(context.Background(), calls)
	return calls
}

func TestALoneItemIsSentByItself(t *testing.T) {
	var d desk
	c := d.send("abc")[0]
	check.ErrorIf(t, c.value != 3 || c.err != nil || len(d.many) != 0, "%d, %v, scripts for %v", c.value, c.err, d.many)
}

func TestItemsAreOneCommandAndAnOddItemIsSentByItself(t *testing.T) {
	var d desk
	for i, c := range d.send("a", "odd one", "bb") {
		want := []int64{101, 7, 102}[i]
		check.ErrorIf(t, c.value != want || c.err != nil, "%s: %d, %v; want %d", c.item, c.value, c.err, want)
	}
	check.ErrorIf(t, fmt.Sprint(d.many, d.alone) != "[3] [odd one]", "scripts for %v, alone %v", d.many, d.alone)
}

func TestNoCommandHasMoreItemsThanTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := desk{answer: make(chan struct{})}
		j := d.merger()
		var all sync.WaitGroup
		const n = 3*most + mostSenders
		for range n {
			all.Go(func() {
				_, left, err := j.Do(cancellable(t), "a")
				check.ErrorIf(t, err != nil || left != nil, "%v", err)
			})
		}
		synctest.Wait()
		close(d.answer)
		all.Wait()
		asked := len(d.alone)
		for _, many := range d.many {
			if asked += many; many > most {
				t.Errorf("a script for %d", many)
			}
		}
		check.ErrorIf(t, asked != n || len(d.many) < 3, "%d of %d were asked for, by %d scripts and %d alone", asked, n,
			len(d.many), len(d.alone))
		j.Close()
	})
}

// A refused command has done nothing, so all items are sent again; after an unknown outcome none is.
func TestItemsOfARefusedCommandAreSentOneByOne(t *testing.T) {
	d := desk{failed: errors.New("ERR no")}
	for _, c := range d.send("a", "bb") {
		check.ErrorIf(t, c.err != nil || c.value != int64(len(c.item)), "%s: %d, %v", c.item, c.value, c.err)
	}
	d = desk{failed: errors.New("connection lost")}
	for _, c := range d.send("a", "bb") {
		check.ErrorIf(t, c.err != d.failed, "%s: %v", c.item, c.err)
	}
	check.ErrorIf(t, len(d.alone) != 0, "%v asked again", d.alone)
}

func TestACallerCanLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := desk{answer: make(chan struct{})}
		j := d.merger()
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		left := make(chan *Left, 1)
		for range 8 {
			all.Go(func() {
				n, _, err := j.Do(context.Background(), "stays")
				check.ErrorIf(t, err != nil || n != 105 && n != 5, "%d, %v", n, err)
			})
		}
		all.Go(func() { _, l, _ := j.Do(ctx, "leaves!"); left <- l })
		synctest.Wait()
		leave()
		behind := <-left
		check.FatalIf(t, behind == nil, "not left")
		close(d.answer)
		<-behind.Done
		n, err := behind.Reply()
		check.ErrorIf(t, err != nil || n != 107 && n != 7, "%d, %v", n, err)
		all.Wait()
		j.Close()
	})
}
