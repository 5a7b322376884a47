//go:build linux

package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/middleware/httplock"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/test/internal/harness"
)

const patience = 60 * time.Second

// serverEnv tells this binary to be a server: Redis's address, the witness's URL and "refuse" or
// "wait".
const serverEnv = "MORTISE_APP_SERVER"

func TestMain(m *testing.M) {
	harness.Worker(serverEnv, serve)
	os.Exit(m.Run())
}

// serve is a server process: a chi application whose handler tells the witness when it
// begins and ends. It prints its address and ends with its standard input.
func serve(config []string) error {
	rdb := redis.NewClient(&redis.Options{Addr: config[0]})
	defer rdb.Close()
	locks, err := mortise.New(redisgo.New(rdb))
	if err != nil {
		return err
	}
	defer locks.Close()
	var opts []httplock.Option
	if config[2] == "wait" {
		opts = append(opts, httplock.WithMaxClientWait())
	}
	app := chi.NewRouter()
	app.With(httplock.New(locks, httplock.RouteKey("orders:{id}"), opts...)).Post("/orders/{id}",
		func(w http.ResponseWriter, r *http.Request) {
			for _, what := range []string{"in", "out"} {
				resp, err := http.Post(config[1]+"/"+what+"/"+chi.URLParam(r, "id"), "", nil)
				if err != nil {
					http.Error(w, err.Error(), http.StatusInternalServerError)
					return
				}
				resp.Body.Close()
			}
			io.WriteString(w, "shipped")
		})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: app}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		srv.Shutdown(context.Background())
	}()
	fmt.Println("http://" + l.Addr().String())
	if err := srv.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// witness counts the requests in a handler: outside Redis, and outside the servers.
type witness struct {
	mu      sync.Mutex
	inside  map[string]int
	most    map[string]int
	entries int
}

func (w *witness) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	what, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	w.mu.Lock()
	if what == "in" {
		w.entries++
		w.inside[key]++
		w.most[key] = max(w.most[key], w.inside[key])
	} else {
		w.inside[key]--
	}
	w.mu.Unlock()
	if what == "in" {
		time.Sleep(time.Millisecond) // the work, during which others may be let in wrongly
	}
}

func start(t *testing.T, config ...string) string {
	t.Helper()
	p := harness.Must(harness.Talk(harness.Self(serverEnv, config)))(t)
	t.Cleanup(func() {
		p.In.Close()
		if err := p.Ends(patience); err != nil {
			t.Errorf("a server process: %v\n%s", err, p.Output.String())
		}
	})
	return strings.TrimSpace(harness.Must(p.Out.ReadString('\n'))(t))
}

// Two server processes on one Redis, 200 concurrent requests on 5 keys: never are two of one key
// in a handler.
func TestTwoServersServeAKeyOneAtATime(t *testing.T) {
	for _, mode := range []string{"refuse", "wait"} {
		t.Run(mode, func(t *testing.T) {
			const requests, keys = 200, 5
			store := redistest.Start(t)
			w := &witness{inside: make(map[string]int), most: make(map[string]int)}
			ws := httptest.NewServer(w)
			t.Cleanup(ws.Close)
			var servers []string
			for range 2 {
				servers = append(servers, start(t, store.Addr(), ws.URL, mode))
			}
			client := &http.Client{Timeout: patience, Transport: &http.Transport{}}
			t.Cleanup(client.CloseIdleConnections)

			var (
				wg       sync.WaitGroup
				mu       sync.Mutex
				statuses []int
				begin    = make(chan struct{})
			)
			for i := range requests {
				wg.Go(func() {
					<-begin
					resp, err := client.Post(fmt.Sprintf("%s/orders/%d", servers[i%2], i/2%keys), "application/json",
						strings.NewReader("{}"))
					if err != nil {
						t.Error(err)
						return
					}
					defer resp.Body.Close()
					body, err := io.ReadAll(resp.Body)
					harness.Check(t, err)
					mu.Lock()
					statuses = append(statuses, resp.StatusCode)
					mu.Unlock()
					if resp.StatusCode == http.StatusOK && string(body) == "shipped" {
						return
					}
					var p httplock.Problem
					after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
					harness.ErrorIf(t, resp.StatusCode != 423 || resp.Header.Get("Content-Type") != "application/problem+json" ||
						err != nil || after < 1 || after > 30 ||
						json.Unmarshal(body, &p) != nil || p.Status != 423 || p.Type != httplock.TypeLocked,
						"refused with %d, %v\n%s", resp.StatusCode, resp.Header, body)
				})
			}
			close(begin)
			wg.Wait()

			served := 0
			for _, s := range statuses {
				if s == http.StatusOK {
					served++
				}
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			for key, most := range w.most {
				harness.ErrorIf(t, most != 1, "%d at once in the handler of key %s", most, key)
			}
			harness.ErrorIf(t, len(w.most) != keys || w.entries != served || served < keys,
				"%d keys were served, %d entries, %d answers of 200", len(w.most), w.entries, served)
			refused := len(statuses) - served
			harness.ErrorIf(t, mode == "wait" && refused > 0 || mode == "refuse" && refused == 0,
				"%d of %d were refused", refused, len(statuses))
			t.Logf("%d served, %d refused", served, len(statuses)-served)
			for key := range keys {
				n, err := store.Do("EXISTS", fmt.Sprintf("orders:%d", key))
				harness.ErrorIf(t, err != nil || n != int64(0), "a lock is left on key %d: %v %v", key, n, err)
			}
		})
	}
}

// Where chi's middleware knows the value: With, Group, and Use behind the pattern that has it; not before.
func TestChi(t *testing.T) {
	locks := harness.Must(mortise.New(memory.New()))(t)
	t.Cleanup(func() { locks.Close() })
	lock := httplock.New(locks, httplock.RouteKey("orders:{id}"))
	name := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, httplock.Lease(r.Context()).Name()) }
	app := chi.NewRouter()
	app.With(lock).Post("/with/{id}", name)
	app.Group(func(r chi.Router) {
		r.Use(lock) // of a group: behind the route
		r.Post("/group/{id}", name)
	})
	app.Route("/route/{id}", func(r chi.Router) {
		r.Use(lock)
		r.Post("/ship", name)
	})
	app.Route("/before", func(r chi.Router) {
		r.Use(lock) // before {id} is known
		r.Post("/{id}/ship", name)
	})
	app.Route("/inner", func(r chi.Router) {
		r.Group(func(r chi.Router) {
			r.Use(lock)
			r.Post("/{id}/ship", name)
		})
	})
	front := chi.NewRouter()
	front.Use(lock) // before the route is known
	front.Post("/use/{id}", name)
	app.Mount("/front", front)

	srv := httptest.NewServer(app)
	t.Cleanup(srv.Close)
	for path, want := range map[string]string{
		"/with/42":        "200 orders:42",
		"/group/42":       "200 orders:42",
		"/route/42/ship":  "200 orders:42",
		"/before/42/ship": "400",
		"/inner/42/ship":  "200 orders:42",
		"/front/use/42":   "400",
	} {
		resp := harness.Must(http.Post(srv.URL+path, "", nil))(t)
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		got := strings.Fields(fmt.Sprint(resp.StatusCode, " ", string(body)))
		harness.ErrorIf(t, err != nil || !slices.Equal(got[:min(len(got), len(strings.Fields(want)))], strings.Fields(want)),
			"%s: %v %v, want %s", path, got, err, want)
	}
}
