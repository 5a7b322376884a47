package castest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/cas"
)

// Store is a store under test, empty when it is opened. The test's Cleanup closes it.
type Store interface {
	// Driver returns a driver for one more session. If it has a method Close() error, the test calls it.
	Driver() cas.Driver
	// Cut breaks all connections. New ones are accepted at once.
	Cut()
	// Down breaks and refuses connections until Up.
	Down()
	Up()
	// EndSession ends, at the store, what a session listens with; its driver is alive.
	EndSession(session string)
}

// jitter is by how much less than the store's clock this process's may go on in a test.
const jitter = 10 * time.Millisecond

// patience bounds each wait for what must happen.
const patience = 20 * time.Second

// Run holds a driver to the obligations of [cas.Driver], one test for each. open makes an empty store.
func Run(t *testing.T, open func(t *testing.T) Store) {
	for _, x := range obligations {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			x.run(&env{t, open(t)})
		})
	}
}

type obligation struct {
	name string
	run  func(*env)
}

// env is what a test has at hand.
type env struct {
	*testing.T
	store Store
}

// driver returns a driver that is closed at the end.
func (e *env) driver() cas.Driver {
	d := e.store.Driver()
	if c, is := d.(interface{ Close() error }); is {
		e.Cleanup(func() { _ = c.Close() })
	}
	return d
}

var background = context.Background()

// swaps carries out swaps, which must be answered.
func (e *env) swaps(d cas.Driver, in ...cas.Swap) []cas.Swapped {
	e.Helper()
	out := make([]cas.Swapped, len(in))
	if err := d.Swap(background, in, out); err != nil {
		e.Fatalf("Swap: %v", err)
	}
	for i := range out {
		if out[i].Err != nil {
			e.Fatalf("Swap of %s: %v", in[i].Key, out[i].Err)
		}
	}
	return out
}

func (e *env) swap(d cas.Driver, key string, version int64, value string) cas.Swapped {
	e.Helper()
	return e.swaps(d, cas.Swap{Key: key, Version: version, Value: []byte(value)})[0]
}

// put is swap that must be done.
func (e *env) put(d cas.Driver, key string, version int64, value string) cas.Swapped {
	e.Helper()
	r := e.swap(d, key, version, value)
	if !r.Done || r.Version <= cas.None || r.Version == version {
		e.Fatalf("the swap of %s from version %d: %+v, want it done, with a new version", key, version, r)
	}
	return r
}

func (e *env) remove(d cas.Driver, key string, version int64) {
	e.Helper()
	if r := e.swaps(d, cas.Swap{Key: key, Version: version})[0]; !r.Done || r.Version != cas.None {
		e.Fatalf("the removal of %s: %+v, want it done, and no version", key, r)
	}
}

func (e *env) look(d cas.Driver, key string) cas.Swapped {
	e.Helper()
	return e.swaps(d, cas.Swap{Key: key, Version: cas.Look})[0]
}

// has checks the value of a key; "" for none.
func (e *env) has(d cas.Driver, key, want string) cas.Swapped {
	e.Helper()
	r := e.look(d, key)
	if string(r.Value) != want || (want == "") != (r.Version == cas.None) || r.Done {
		e.Fatalf("%s is %+v, want %q", key, r, want)
	}
	return r
}

// eventually waits until is reports true.
func (e *env) eventually(what string, is func() bool) {
	e.Helper()
	for began := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			e.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// ear is what a session hears.
type ear struct {
	mu    sync.Mutex
	texts []string
	heard []cas.Heard
	ready atomic.Int32
	ended chan error
}

// listen listens for a session until the end of the test, once. It returns when the driver says that it does.
func (e *env) listen(d cas.Driver, session string) *ear {
	e.Helper()
	ctx, cancel := context.WithCancel(background)
	x := &ear{ended: make(chan error, 1)}
	go func() {
		x.ended <- d.Listen(ctx, session, func(h cas.Heard) {
			if h.Text == "" {
				x.ready.Add(1)
				return
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			x.texts, x.heard = append(x.texts, h.Text), append(x.heard, h)
		})
	}()
	e.Cleanup(cancel)
	e.eventually("it listens", func() bool { return x.ready.Load() > 0 })
	return x
}

func (x *ear) has(text string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Contains(x.texts, text)
}

// temporary checks the error of a store that is unavailable.
func (e *env) temporary(what string, err error) {
	e.Helper()
	if f := backend.FaultOf(err); err == nil || !f.Temporary || f.Remedy == "" {
		e.Errorf("%s: %v (%+v), want a temporary fault with a remedy", what, err, f)
	}
}

// obligations are the tests of Run. The last word of a name is what the driver must do.
var obligations = []obligation{
	{"AValueIsReplacedOnlyWhereItHasTheVersion", func(e *env) {
		a, b := e.driver(), e.driver()
		first := e.put(a, "k", cas.None, "1")
		if r := e.swap(b, "k", cas.None, "x"); r.Done || string(r.Value) != "1" || r.Version != first.Version {
			e.Errorf("a value where there is one: %+v, want what is there: %+v", r, first)
		}
		second := e.put(b, "k", first.Version, "2")
		if r := e.swap(a, "k", first.Version, "x"); r.Done || string(r.Value) != "2" || r.Version != second.Version {
			e.Errorf("an old version: %+v, want what is there: %+v", r, second)
		}
		if r := e.swaps(a, cas.Swap{Key: "k", Version: first.Version})[0]; r.Done {
			e.Errorf("a removal of an old version: %+v", r)
		}
		if r := e.swap(a, "absent", first.Version, "x"); r.Done || r.Version != cas.None || r.Value != nil {
			e.Errorf("a version of what is not there: %+v", r)
		}
		if r := e.has(b, "k", "2"); r.Version != second.Version {
			e.Errorf("looking: %+v, want version %d", r, second.Version)
		}
		e.has(a, "absent", "")
	}},
	{"AVersionIsNeverThatOfAnotherValueEvenOverARemoval", func(e *env) {
		d := e.driver()
		seen := make(map[int64]bool)
		for i := range 20 {
			v := e.put(d, "k", cas.None, fmt.Sprint(i))
			if seen[v.Version] {
				e.Fatalf("version %d twice", v.Version)
			}
			seen[v.Version] = true
			v = e.put(d, "k", v.Version, "same")
			v = e.put(d, "k", v.Version, "same")
			seen[v.Version] = true
			e.remove(d, "k", v.Version)
			e.has(d, "k", "")
			for old := range seen {
				if r := e.swap(d, "k", old, "x"); r.Done {
					e.Fatalf("version %d of a value that was removed", old)
				}
			}
		}
		if r := e.swaps(d, cas.Swap{Key: "k", Version: cas.None})[0]; r.Version != cas.None || r.Value != nil {
			e.Errorf("no value instead of no value: %+v", r)
		}
	}},
	{"OneOfManyWins", func(e *env) {
		v, wins := e.put(e.driver(), "k", cas.None, "0").Version, atomic.Int32{}
		var wg sync.WaitGroup
		for i := range 8 {
			d := e.driver()
			wg.Go(func() {
				out := make([]cas.Swapped, 1)
				err := d.Swap(background, []cas.Swap{{Key: "k", Version: v, Value: []byte{byte(i)}}}, out)
				if err == nil && out[0].Done {
					wins.Add(1)
				}
			})
		}
		wg.Wait()
		if n := wins.Load(); n != 1 {
			e.Errorf("%d swaps of one version were done", n)
		}
	}},
	{"ARemovalOfNothingIsDoneWhereThereIsNothing", func(e *env) {
		d := e.driver()
		e.put(d, "a", cas.None, "of a")
		for _, first := range []cas.Swap{ // a batch's swap before it is done, or not
			{Key: "b", Version: cas.None, Value: []byte("of b")}, {Key: "b", Version: cas.None, Value: []byte("again")},
		} {
			out := e.swaps(d, first, cas.Swap{Key: "a", Version: cas.None}, cas.Swap{Key: "c", Version: cas.None})
			if r := out[1]; r.Done || r.Version == cas.None {
				e.Errorf("the removal of a value from no version: %+v, want it refused", r)
			}
			if r := out[2]; !r.Done || r.Version != cas.None {
				e.Errorf("the removal of nothing: %+v, want it done", r)
			}
		}
		e.has(d, "a", "of a")
		e.has(d, "c", "")
	}},
	{"SwapsOfABatchAreIndependent", func(e *env) {
		d := e.driver()
		most := d.Limits().Batch
		in := make([]cas.Swap, most)
		for i := range in {
			in[i] = cas.Swap{Key: fmt.Sprintf("k%04d", i), Version: cas.None, Value: []byte{byte(i)}}
			if i%3 == 0 {
				e.put(d, in[i].Key, cas.None, "there")
			}
		}
		for i, r := range e.swaps(d, in...) {
			if r.Done != (i%3 != 0) || !r.Done && string(r.Value) != "there" {
				e.Errorf("swap %d: %+v", i, r)
			}
		}
	}},
	{"BatchesOfTheSameKeysDoNotBlockEachOther", func(e *env) {
		var wg sync.WaitGroup
		for range 4 {
			d := e.driver()
			wg.Go(func() {
				in, out := make([]cas.Swap, 32), make([]cas.Swapped, 32)
				for range 30 {
					for i := range in {
						in[i] = cas.Swap{Key: fmt.Sprintf("k%02d", i), Version: out[i].Version, Value: []byte("x")}
					}
					if err := d.Swap(background, in, out); err != nil {
						e.Errorf("Swap: %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
	}},
	{"AnyBytesOfTheLimitsLengthAreKept", func(e *env) {
		d := e.driver()
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		for key, value := range map[string][]byte{
			"bytes": all, "long": bytes.Repeat(all, d.Limits().Value/len(all)), strings.Repeat("k", 200): {0},
			"über/straße 鎖 'quoted' \"too\" \\ {a}:b*?": {0xff}, "A": {1}, "a": {2}, "a ": {3}, " a": {4},
		} {
			e.swaps(d, cas.Swap{Key: key, Version: cas.None, Value: value})
			if r := e.look(d, key); !bytes.Equal(r.Value, value) {
				e.Errorf("%.40q: %d bytes, want %d", key, len(r.Value), len(value))
			}
		}
	}},
	{"TheStoreStampsAndTellsItsTime", func(e *env) {
		d := e.driver()
		if d.Limits().NoClock {
			e.keepsStamps(d)
			return
		}
		before := e.look(d, "k")
		began := time.Now()
		v := e.put(d, "k", cas.None, "1")
		if before.Now == 0 || before.Stamp != 0 || v.Stamp < before.Now || v.Now < v.Stamp {
			e.Fatalf("it was %+v before, and then %+v", before, v)
		}
		after := v
		e.eventually("the store's clock goes on", func() bool {
			after = e.has(d, "k", "1")
			return after.Now > v.Now+20*time.Millisecond
		})
		if d := time.Since(began); after.Stamp != v.Stamp || after.Now-v.Now < 20*time.Millisecond-jitter || d < jitter {
			e.Errorf("after %v: %+v, was %+v", d, after, v)
		}
	}},
	{"NoticesOfASwapThatIsDoneArriveAndNoOthers", func(e *env) {
		d, other := e.driver(), e.driver()
		a, b := e.listen(d, "sa1"), e.listen(other, "sb2")
		v := e.swaps(other, cas.Swap{Key: "k", Value: []byte("1"), Notices: []cas.Notice{
			{Session: "sa1", Text: "one"}, {Session: "sb2", Text: "two"}, {Session: "sc3", Text: "three"},
			{Session: "sa1", Text: strings.Repeat("x", 4000)},
		}})[0]
		e.swaps(other, cas.Swap{Key: "k", Version: v.Version + 1000, Value: []byte("2"),
			Notices: []cas.Notice{{Session: "sa1", Text: "not"}}})
		e.swaps(other, cas.Swap{Key: "l", Value: []byte("1"), Notices: []cas.Notice{{Session: "sa1", Text: "last"}}})
		e.eventually("all arrive", func() bool {
			return a.has("one") && a.has(strings.Repeat("x", 4000)) && a.has("last") && b.has("two")
		})
		if a.has("not") || a.has("two") || a.has("three") || b.has("one") {
			e.Errorf("they heard %q and %q", a.texts, b.texts)
		}
		if h := a.heard[0]; h.Stamp != 0 && h.Stamp != v.Stamp {
			e.Errorf("the notice has the stamp %v, the value %v", h.Stamp, v.Stamp)
		}
	}},
	{"ListenEndsWithItsConnectionAndWithItsContext", func(e *env) {
		d := e.driver()
		x := e.listen(d, "sa1")
		e.store.EndSession("sa1")
		e.ends("after its end at the store", x)
		x = e.listen(d, "sa1")
		e.store.Cut()
		e.ends("after a cut", x)
		x = e.listen(d, "sa1")
		e.put(e.driver(), "other", cas.None, "1")
		e.swaps(e.driver(), cas.Swap{Key: "k", Value: []byte("1"), Notices: []cas.Notice{{Session: "sa1", Text: "again"}}})
		e.eventually("it hears again", func() bool { return x.has("again") })
		e.store.Down()
		e.ends("while the store is down", x)
		e.temporary("Listen", d.Listen(background, "sa1", func(cas.Heard) {}))
		e.store.Up()
		ctx, cancel := context.WithCancel(background)
		ended := make(chan error, 1)
		go func() { ended <- d.Listen(ctx, "sa2", func(cas.Heard) { cancel() }) }()
		select {
		case <-ended:
		case <-time.After(patience):
			e.Error("Listen goes on after its context has ended")
		}
	}},
	{"WhileTheStoreIsDownSwapsFailAndHaveNotRun", func(e *env) {
		d := e.driver()
		v := e.put(d, "k", cas.None, "1")
		e.store.Down()
		out := make([]cas.Swapped, 1)
		// The first may be sent over a connection that broke meanwhile.
		e.temporary("Swap", d.Swap(background, []cas.Swap{{Key: "k", Version: v.Version, Value: []byte("2")}}, out))
		err := d.Swap(background, []cas.Swap{{Key: "k", Version: v.Version, Value: []byte("3")}}, out)
		e.temporary("the second Swap", err)
		if backend.FaultOf(err).MayHaveRun {
			e.Errorf("nothing is connected: %v may have run", err)
		}
		e.temporary("a sign of life", d.Swap(background, nil, nil))
		e.store.Up()
		e.eventually("it answers again", func() bool { return d.Swap(background, nil, nil) == nil })
		if r := e.look(d, "k"); string(r.Value) == "3" {
			e.Error("what had not run has run")
		}
	}},
	{"WhatAnErrorSaysHasNotRunHasNot", func(e *env) {
		d, over := e.driver(), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			defer close(over)
			for range 40 {
				time.Sleep(10 * time.Millisecond)
				e.store.Cut()
			}
		})
		var not []string
		for i := 0; ; i++ {
			select {
			case <-over:
				wg.Wait()
				for _, key := range not {
					var out [1]cas.Swapped
					e.eventually("it answers", func() bool {
						return d.Swap(background, []cas.Swap{{Key: key, Version: cas.Look}}, out[:]) == nil
					})
					if out[0].Value != nil {
						e.Errorf("%s: an error said that it has not run, and there is %+v", key, out[0])
					}
				}
				return
			default:
			}
			key, out := fmt.Sprint("k", i), make([]cas.Swapped, 1)
			err := d.Swap(background, []cas.Swap{{Key: key, Version: cas.None, Value: []byte("1")}}, out)
			if err == nil {
				err = out[0].Err
			}
			if err != nil && !backend.FaultOf(err).MayHaveRun {
				not = append(not, key)
				time.Sleep(time.Millisecond) // thousands that could not be sent tell no more
			}
		}
	}},
	{"AContextThatHasEndedEndsASwap", func(e *env) {
		d := e.driver()
		ctx, cancel := context.WithCancel(background)
		cancel()
		out := make([]cas.Swapped, 1)
		err := d.Swap(ctx, []cas.Swap{{Key: "k", Version: cas.None, Value: []byte("1")}}, out)
		if err == nil {
			e.Error("Swap succeeded under a context that had ended")
		}
		if r := e.look(d, "k"); r.Value != nil && !backend.FaultOf(err).MayHaveRun {
			e.Errorf("%v had not run, and there is %+v", err, r)
		}
	}},
	{"AListHasTheKeysInOrder", func(e *env) {
		d := e.driver()
		l, can := d.(cas.Lister)
		if !can {
			e.Skip("the driver is no Lister")
		}
		list := func(prefix, after string, most int, want ...string) {
			e.Helper()
			all, err := l.List(background, prefix, after, most)
			var got []string
			for _, k := range all {
				got = append(got, k.Key)
				if now := e.has(d, k.Key, "of "+k.Key); k.Version != now.Version || k.Stamp != now.Stamp || k.Done ||
					string(k.Value) != "of "+k.Key || k.Now < k.Stamp || k.Now > now.Now {
					e.Errorf("%s is listed as %+v, and is %+v", k.Key, k, now)
				}
			}
			if err != nil || !slices.Equal(got, want) {
				e.Errorf("the first %d of %q after %q: %q, %v, want %q", most, prefix, after, got, err, want)
			}
		}
		list("", "", 10)
		keys := []string{"B", "a", "a%b", "a*", "a.b", "a:1", "a:10", "a:2", "a_b", "b", "\u00e4:1", "\U0010ffff\U0010ffff"}
		for _, key := range keys {
			e.put(d, key, cas.None, "of "+key)
		}
		gone := e.put(d, "a:11", cas.None, "of a:11")
		e.remove(d, "a:11", gone.Version)
		list("", "", 100, keys...)
		list("", "a:1", 2, "a:10", "a:2")
		list("a:", "", 100, "a:1", "a:10", "a:2")
		list("a:", "a:10", 100, "a:2")
		list("a:", "a:2", 100)
		list("a:1", "", 1, "a:1")
		list("a%", "", 100, "a%b")
		list("a_", "", 100, "a_b")
		list("a*", "", 100, "a*")
		list("\U0010ffff", "", 100, "\U0010ffff\U0010ffff")
		list("c", "", 100)
	}},
	{"AnUpdateExcludesOtherClients", func(e *env) {
		if _, can := e.driver().(cas.Updater); !can {
			e.Skip("the driver is no Updater")
		}
		const clients, each = 4, 25
		var wg sync.WaitGroup
		for range clients {
			u := e.driver().(cas.Updater)
			wg.Go(func() {
				for done := 0; done < each; {
					r, err := u.Update(background, "k", func(cur cas.Swapped) cas.Swap {
						return cas.Swap{Key: "k", Version: cur.Version, Value: append(cur.Value, 'x')}
					})
					if err != nil || r.Err != nil {
						e.Errorf("Update: %+v, %v", r, err)
						return
					}
					if r.Done {
						done++
					}
				}
			})
		}
		wg.Wait()
		d := e.driver()
		r := e.look(d, "k")
		if len(r.Value) != clients*each {
			e.Errorf("%d updates are there, want %d", len(r.Value), clients*each)
		}
		got, err := d.(cas.Updater).Update(background, "k", func(cur cas.Swapped) cas.Swap {
			return cas.Swap{Key: "k", Version: cas.Look}
		})
		if err != nil || got.Done || got.Version != r.Version {
			e.Errorf("an Update that changes nothing: %+v, %v", got, err)
		}
	}},
}

// keepsStamps checks a store without a clock: a value has the stamp of its swap, and no driver tells that more has
// passed since than has.
func (e *env) keepsStamps(d cas.Driver) {
	e.Helper()
	const stamp = 1000*time.Hour + 1
	before := e.look(d, "k")
	if before.Now <= 0 || before.Stamp != 0 {
		e.Fatalf("a key without a value: %+v, want a time and no stamp", before)
	}
	age := func(r cas.Swapped, began time.Time) time.Duration {
		if most := time.Since(began); r.Stamp != stamp || r.Now < stamp || r.Now > stamp+most {
			e.Fatalf("%v after a swap with the stamp %v: %+v", most, stamp, r)
		}
		return r.Now - stamp
	}
	put := func(key string, version int64) (cas.Swapped, time.Time) {
		began := time.Now()
		r := e.swaps(d, cas.Swap{Key: key, Version: version, Value: []byte("1"), Stamp: stamp})[0]
		if !r.Done {
			e.Fatalf("the swap of %s: %+v, want it done", key, r)
		}
		age(r, began)
		return r, began
	}
	v, began := put("k", cas.None)
	after := e.look(e.driver(), "l")
	if after.Now <= before.Now {
		e.Errorf("a key without a value has the time %v, and had %v before another was written", after.Now, before.Now)
	}
	for range 20 {
		v, began = put("k", v.Version)
		age(e.look(e.driver(), "k"), began)
	}
	other, last := e.driver(), time.Duration(0)
	e.eventually("a driver tells that time passes", func() bool {
		now := age(e.look(other, "k"), began)
		if now < last {
			e.Fatalf("the age of k was %v, and then %v", last, now)
		}
		last = now
		return now > 20*time.Millisecond
	})
	e.eventually("a driver that begins later tells that time has passed, too", func() bool {
		return age(e.look(e.driver(), "k"), began) > time.Second
	})
	e.remove(d, "k", v.Version)
	if gone := e.look(d, "k"); gone.Now <= before.Now || gone.Stamp != 0 {
		e.Errorf("a removed value: %+v, want a time after that of %+v", gone, before)
	}
}

// ends waits for the end of Listen, with an error.
func (e *env) ends(when string, x *ear) {
	e.Helper()
	select {
	case err := <-x.ended:
		e.temporary("Listen "+when, err)
	case <-time.After(patience):
		e.Fatalf("Listen goes on %s", when)
	}
}
