package console_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/console"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/redisgo"
)

// shown is what a page's script gets.
type shown struct {
	Locks []struct {
		Name, Owner string
		Held        bool
		Left        int64
		Waiters     int
		Queue       []struct{ Name string }
	}
	Total   int
	Error   string
	Reading bool
}

// below is where the consoles of tests are.
const below = "/debug/locks/"

// serve serves a console.
func serve(t *testing.T, locks console.Store, o console.Options) string {
	h := console.New(locks, o)
	mux := http.NewServeMux()
	mux.Handle(below, h)
	s := httptest.NewServer(mux)
	t.Cleanup(func() { h.Close(); s.Close() })
	return s.URL + below
}

// await reads the events of a page until ok.
func await(t *testing.T, address string, ok func(shown) bool) {
	t.Helper()
	r := check.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)).In(t)
	res := check.Value(http.DefaultClient.Do(r)).In(t)
	defer res.Body.Close()
	check.Equal(t, "content type %q", res.Header.Get("Content-Type"), "text/event-stream")
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s shown
		if text, found := strings.CutPrefix(lines.Text(), "data: {"); found {
			check.NoError(t, json.Unmarshal([]byte("{"+text), &s))
			if ok(s) {
				return
			}
		}
	}
	t.Fatalf("the events ended: %v", lines.Err())
}

func clientOf(t *testing.T) *mortise.Client {
	locks := check.Value(mortise.New(memory.New())).In(t)
	t.Cleanup(func() { locks.Close() })
	return locks
}

func get(t *testing.T, address string) (int, string) {
	t.Helper()
	res := check.Value(http.Get(address)).In(t)
	defer res.Body.Close()
	check.ErrorIf(t, strings.Contains(res.Header.Get("Content-Security-Policy"), "unsafe"), "the policy is unsafe")
	return res.StatusCode, string(check.Value(io.ReadAll(res.Body)).In(t))
}

func TestAPageSeesALockTakenElsewhereAndItsWaiter(t *testing.T) {
	locks := clientOf(t)
	address := serve(t, locks, console.Options{Every: 5 * time.Millisecond})
	await(t, address+"events", func(s shown) bool { return len(s.Locks) == 0 })
	lease := check.Value(locks.Lock(t.Context(), "orders:42", mortise.Fair())).In(t)
	owner := check.Value(locks.Inspect(t.Context(), "orders:42")).In(t).Owner
	await(t, address+"events", func(s shown) bool {
		return s.Total == 1 && s.Locks[0].Owner == owner && s.Locks[0].Left > 0
	})
	got := make(chan error, 1)
	go func() {
		second, err := locks.Lock(context.Background(), "orders:42", mortise.Fair())
		got <- errors.Join(err, second.Unlock(context.Background()))
	}()
	await(t, address+"events", func(s shown) bool { return s.Locks[0].Waiters == 1 })
	await(t, address+"events?name=orders:42", func(s shown) bool { return len(s.Locks[0].Queue) == 1 })
	check.Done(t, lease.Unlock(t.Context()))
	check.Done(t, <-got)
	await(t, address+"events", func(s shown) bool { return len(s.Locks) == 0 })
	await(t, address+"events?name=orders:42", func(s shown) bool { return !s.Locks[0].Held })
}

// fake is a store with the given locks.
type fake struct {
	names   int
	info    mortise.LockInfo
	pause   func() // before each lock
	looks   atomic.Int64
	failing atomic.Bool
}

func (f *fake) Locks(context.Context, string) iter.Seq2[mortise.LockInfo, error] {
	f.looks.Add(1)
	return func(yield func(mortise.LockInfo, error) bool) {
		if f.failing.Load() {
			yield(mortise.LockInfo{}, mortise.ErrUnavailable)
			return
		}
		for n := range f.names {
			if f.pause != nil {
				f.pause()
			}
			i := f.info
			i.Name, i.Token = fmt.Sprint(i.Name, n), f.looks.Load() // there is something new in each look
			i.Since = time.Unix(int64(2_000_000-n), 0)
			if !yield(i, nil) {
				return
			}
		}
	}
}

func (f *fake) Inspect(context.Context, string) (mortise.LockInfo, error) { return f.info, nil }
func (f *fake) ForceUnlock(context.Context, string, string) (bool, error) { return true, nil }

func TestScriptInNamesAndOwnersIsText(t *testing.T) {
	const evil = `"><script>alert(1)</script>` + "\n\ndata: {}"
	f := &fake{names: 1, info: mortise.LockInfo{Name: evil, Owner: evil, Client: evil, Host: evil, Held: true,
		Kind: "lock", Queue: []mortise.LockWaiter{{Owner: evil}}}}
	address := serve(t, f, console.Options{About: evil, Authorize: func(*http.Request, string) (string, error) {
		return "", nil
	}})
	_, list := get(t, address)
	check.ErrorIf(t, !strings.Contains(list, "&lt;script&gt;"), "the page does not say what it is about: %s", list)
	check.ErrorIf(t, strings.Contains(list, "<script>"), "the page has a script of others: %s", list)
	_, page := get(t, address+"lock?name="+url.QueryEscape(evil))
	check.ErrorIf(t, !strings.Contains(page, "&lt;script&gt;"), "the page does not have the name: %s", page)
	check.ErrorIf(t, strings.Contains(page, "<script>"), "the page has a script of others: %s", page)
	_, done := get(t, address+"lock?name=a&done="+url.QueryEscape(evil))
	check.ErrorIf(t, strings.Contains(done, "<script>"), "the page has a script of others: %s", done)
	await(t, address+"events", func(s shown) bool {
		return s.Locks[0].Name == evil+"0" && s.Locks[0].Owner == evil // in one event, on one line
	})
}

func TestPagesWorkBelowAnyPath(t *testing.T) {
	address := serve(t, clientOf(t), console.Options{})
	for path, status := range map[string]int{"": 200, "console.css": 200, "console.js": 200, "icon.svg": 200,
		"lock?name=a": 200, "lock": 200, "top.html": 404, "unlock": 404} {
		got, page := get(t, address+path)
		check.ErrorIf(t, got != status, "%q: %d", path, got)
		check.ErrorIf(t, strings.Contains(page, `="/`), "%q has an address that is not relative", path)
		check.ErrorIf(t, strings.Contains(page, "style="), "%q has a style that its policy forbids", path)
	}
}

// A list of 100,000 locks is the oldest of them, and their number.
func TestAListShowsTheOldestOfManyLocks(t *testing.T) {
	check.Long(t)
	f := &fake{names: 100_000, info: mortise.LockInfo{Name: "lock-", Held: true, Owner: "a:1", Kind: "lock"}}
	await(t, serve(t, f, console.Options{Most: 50})+"events", func(s shown) bool {
		if s.Reading {
			return false
		}
		check.Equal(t, "%d locks", len(s.Locks), 50)
		check.Equal(t, "%d in the store", s.Total, 100_000)
		check.Equal(t, "the oldest is %q", s.Locks[0].Name, "lock-99999")
		check.Equal(t, "the youngest shown is %q", s.Locks[49].Name, "lock-99950")
		return true
	})
}

// viewer is a connection without a network. A slow one takes nothing until it is woken.
type viewer struct {
	http.ResponseWriter
	slow chan struct{}
	mu   sync.Mutex
	got  []string
}

func (v *viewer) Header() http.Header              { return http.Header{} }
func (v *viewer) WriteHeader(int)                  {}
func (v *viewer) Flush()                           {}
func (v *viewer) SetWriteDeadline(time.Time) error { return nil }

func (v *viewer) Write(b []byte) (int, error) {
	if v.slow != nil {
		<-v.slow
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if strings.HasPrefix(string(b), "data:") {
		v.got = append(v.got, string(b))
	}
	return len(b), nil
}

// A thousand viewers cost the store what one does; when the last one has left, it is asked no more. A slow viewer holds
// nothing up, and then gets the newest state only.
func TestAThousandViewersCostTheStoreAsOne(t *testing.T) {
	for _, viewers := range []int{1, 1000} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{names: 3, info: mortise.LockInfo{Name: "a", Held: true, Owner: "a:1", Kind: "lock"}}
			h := console.New(f, console.Options{})
			ctx, leave := context.WithCancel(t.Context())
			request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/events", nil)
			all := make([]*viewer, viewers+1)
			for i := range all {
				all[i] = &viewer{}
				if i == viewers {
					all[i].slow = make(chan struct{})
				}
				go h.ServeHTTP(all[i], request)
			}
			synctest.Wait()
			time.Sleep(10*time.Second - time.Millisecond)
			synctest.Wait()
			check.Equal(t, "%d looks in 10 s", f.looks.Load(), 20)
			for _, v := range all[:viewers] {
				check.Equal(t, "a viewer has %d states", len(v.got), 20)
			}
			close(all[viewers].slow)
			synctest.Wait()
			check.Equal(t, "a slow viewer has %d states", len(all[viewers].got), 1)
			check.ErrorIf(t, !strings.Contains(all[viewers].got[0], `"token":20`), "it is not the newest: %s", all[viewers].got)
			leave()
			synctest.Wait()
			time.Sleep(time.Minute)
			check.Equal(t, "%d looks", f.looks.Load(), 20)
		})
	}
}

// A list that takes long is on the page within a second, as far as it is read.
func TestALongListIsShownWhileItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{names: 4000, info: mortise.LockInfo{Name: "a", Held: true, Owner: "a:1"}}
		f.pause = func() { time.Sleep(time.Millisecond) }
		h := console.New(f, console.Options{Most: 10})
		ctx, leave := context.WithCancel(t.Context())
		v := &viewer{}
		go h.ServeHTTP(v, httptest.NewRequestWithContext(ctx, http.MethodGet, "/events", nil))
		after := func(d time.Duration) (s shown) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			v.mu.Lock()
			defer v.mu.Unlock()
			check.FatalIf(t, len(v.got) == 0, "nothing was sent")
			_, text, _ := strings.Cut(v.got[len(v.got)-1], "\ndata: ")
			check.NoError(t, json.Unmarshal([]byte(text), &s))
			return s
		}
		first := after(time.Second)
		check.ErrorIf(t, !first.Reading || len(first.Locks) != 10 || first.Total < 500, "after a second: %+v", first)
		all := after(4 * time.Second)
		check.ErrorIf(t, all.Reading || len(all.Locks) != 10 || all.Total != 4000, "after the look: %+v", all)
		sent := len(v.got)
		time.Sleep(17 * time.Second) // the next look is at work: nothing is sent in the middle of it
		again := after(0)
		check.ErrorIf(t, again.Reading || len(v.got) != sent, "in the second look: %d states, %+v", len(v.got)-sent, again)
		leave()
		time.Sleep(10 * time.Second) // the look does not hear of it
	})
}

// What a failed look does not show stays on the page.
func TestAPageKeepsWhatItShowsWhileTheStoreFails(t *testing.T) {
	f := &fake{names: 3, info: mortise.LockInfo{Name: "a", Held: true, Owner: "a:1", Kind: "lock"}}
	address := serve(t, f, console.Options{Every: time.Millisecond})
	await(t, address+"events", func(s shown) bool {
		f.failing.Store(true)
		return s.Error != "" && len(s.Locks) == 3
	})
	f.failing.Store(false)
	await(t, address+"events", func(s shown) bool { return s.Error == "" && len(s.Locks) == 3 })
}

func TestAPageSaysThatRedisIsUnavailableAndGoesOn(t *testing.T) {
	check.Long(t)
	gate := redistest.NewGate(t, redistest.Start(t).Addr())
	rdb := redis.NewClient(&redis.Options{Addr: gate.Addr()})
	t.Cleanup(func() { rdb.Close() })
	locks := check.Value(mortise.New(redisgo.New(rdb))).In(t)
	t.Cleanup(func() { locks.Close() })
	lease := check.Value(locks.Lock(t.Context(), "a")).In(t)
	defer lease.Unlock(context.Background())
	address := serve(t, locks, console.Options{Every: 5 * time.Millisecond})
	for _, path := range []string{"events", "events?name=a"} {
		await(t, address+path, func(s shown) bool { return s.Error == "" && len(s.Locks) == 1 && s.Locks[0].Held })
		gate.Down()
		await(t, address+path, func(s shown) bool { return s.Error != "" })
		gate.Up()
		await(t, address+path, func(s shown) bool { return s.Error == "" && len(s.Locks) == 1 })
	}
}

// post asks a console to free a lock; the reply is not followed.
func post(t *testing.T, address, name, owner string, headers ...string) (int, string) {
	t.Helper()
	form := strings.NewReader(url.Values{"name": {name}, "owner": {owner}}.Encode())
	r := check.Value(http.NewRequestWithContext(t.Context(), http.MethodPost, address+"unlock", form)).In(t)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res := check.Value(http.DefaultTransport.RoundTrip(r)).In(t)
	res.Body.Close()
	return res.StatusCode, res.Header.Get("Location")
}

func TestUnlock(t *testing.T) {
	locks := clientOf(t)
	var log bytes.Buffer
	said := func(words ...string) {
		t.Helper()
		for _, w := range words {
			check.ErrorIf(t, !strings.Contains(log.String(), w), "the log does not say %s: %s", w, &log)
		}
		log.Reset()
	}
	held := func() string { return check.Value(locks.Inspect(t.Context(), "a")).In(t).Owner }
	logger := slog.New(slog.NewTextHandler(&log, nil))
	authorize := func(r *http.Request, name string) (string, error) {
		if name != "a" || r.Header.Get("X-User") != "root" {
			return r.Header.Get("X-User"), errors.New("not an operator")
		}
		return "root", nil
	}
	address := serve(t, locks, console.Options{Logger: logger, Authorize: authorize})
	check.Value(locks.Lock(t.Context(), "a", mortise.WithLease(time.Minute))).In(t)
	owner := held()

	code, _ := post(t, serve(t, locks, console.Options{}), "a", owner, "X-User", "root")
	check.Equal(t, "without Authorize: %d", code, http.StatusNotFound)
	for _, from := range [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "http://evil.test"},
	} {
		code, _ = post(t, address, "a", owner, append(from, "X-User", "root")...)
		check.Equal(t, "from another site: %d", code, http.StatusForbidden)
		said("unlock refused")
	}
	code, _ = post(t, address, "a", owner, "X-User", "guest")
	check.Equal(t, "refused by Authorize: %d", code, http.StatusForbidden)
	said("unlock refused", "by=guest", "not an operator", "lock=a", "owner="+owner)
	code, _ = post(t, address, "a", "", "X-User", "root")
	check.Equal(t, "without an owner: %d", code, http.StatusBadRequest)
	code, _ = get(t, address+"unlock?name=a&owner="+owner)
	check.Equal(t, "GET: %d", code, http.StatusMethodNotAllowed)
	check.Equal(t, "the owner is %q", held(), owner)

	code, to := post(t, address, "a", "another:1", "X-User", "root", "Sec-Fetch-Site", "same-origin")
	check.ErrorIf(t, code != http.StatusSeeOther || !strings.Contains(to, "done=changed"), "changed: %d %s", code, to)
	said("freed=false", "by=root")
	check.Equal(t, "the owner is %q", held(), owner)
	code, to = post(t, address, "a", owner, "X-User", "root", "Sec-Fetch-Site", "same-origin")
	check.ErrorIf(t, code != http.StatusSeeOther || !strings.Contains(to, "done=freed"), "freed: %d %s", code, to)
	said("freed=true", "by=root", "lock=a", "owner="+owner)
	check.Equal(t, "the owner is %q", held(), "")
}

// The owner changes after the page was shown: before the request in half of the races, and at the same time in the
// others. The lock of the new owner stays.
func TestUnlockNeverFreesAnotherOwner(t *testing.T) {
	check.Long(t)
	const races = 1000
	store, server := memory.New(), redistest.Start(t)
	for name, open := range map[string]func() *mortise.Client{
		"memory": func() *mortise.Client { return check.Value(mortise.New(store)).In(t) },
		"Redis": func() *mortise.Client {
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
			t.Cleanup(func() { rdb.Close() })
			return check.Value(mortise.New(redisgo.New(rdb))).In(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			first, second, operator := open(), open(), open()
			defer func() { check.NoError(t, errors.Join(first.Close(), second.Close(), operator.Close())) }()
			address := serve(t, operator, console.Options{
				Logger:    slog.New(slog.DiscardHandler),
				Authorize: func(*http.Request, string) (string, error) { return "root", nil },
			})
			freed := 0
			for n := range races {
				lease := check.Value(first.Lock(ctx, "n")).In(t)
				owner := check.Value(operator.Inspect(ctx, "n")).In(t).Owner
				got := make(chan *mortise.Lease, 1)
				change := func() {
					lease.Unlock(ctx) // lost, if it was freed before
					next, err := second.Lock(ctx, "n")
					check.NoError(t, err)
					got <- next
				}
				if n%2 == 0 {
					change()
				} else {
					go change()
				}
				code, to := post(t, address, "n", owner)
				check.Equal(t, "unlock: %d", code, http.StatusSeeOther)
				if strings.Contains(to, "done=freed") {
					freed++
					check.ErrorIf(t, n%2 == 0, "race %d: freed", n)
				}
				check.NoError(t, (<-got).Unlock(context.Background()))
			}
			t.Logf("%d races: freed %d, the owner had changed %d", races, freed, races-freed)
		})
	}
}
