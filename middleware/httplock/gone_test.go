//go:build unix

package httplock_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// crowd is a server whose requests want a lock that is held, and counts of what becomes of the requests.
type crowd struct {
	*httptest.Server
	release                func()
	machine                *redistest.Machine
	began, ended, handlers atomic.Int32
}

func newCrowd(t *testing.T, begin func(*httptest.Server), opts ...httplock.Option) *crowd {
	t.Helper()
	locks := middle.InMemory(t, memory.New())
	c := &crowd{release: held42(t, locks), machine: redistest.Timed(t)}
	locked := httplock.New(locks, orders, append(opts, httplock.WithMaxClientWait())...)(http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) { c.handlers.Add(1) }))
	mux := http.NewServeMux()
	mux.HandleFunc("/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		c.began.Add(1)
		defer c.ended.Add(1)
		locked.ServeHTTP(w, r)
	})
	c.Server = httptest.NewUnstartedServer(mux)
	c.Config.ErrorLog = log.New(io.Discard, "", 0)
	begin(c.Server)
	t.Cleanup(func() { c.release(); c.Close() })
	return c
}

// until waits until ok. Clients that have left must be noticed while the lock is still held.
func until(t *testing.T, ok func() bool, what func() string) {
	t.Helper()
	for end := time.Now().Add(middle.Patience); !ok(); time.Sleep(2 * time.Millisecond) {
		check.FatalIf(t, time.Now().After(end), "not within %v: %s", middle.Patience, what())
	}
}

// left checks that the requests of n clients, all of which have left, end while the lock is held, and are not served.
func (c *crowd) left(t *testing.T, n int32, goroutines int) {
	t.Helper()
	begin := time.Now()
	until(t, func() bool { return c.ended.Load() == n }, func() string {
		return fmt.Sprintf("%d of %d requests of clients that have left have ended", c.ended.Load(), n)
	})
	until(t, func() bool { return runtime.NumGoroutine() <= goroutines }, func() string {
		return fmt.Sprintf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
	})
	c.machine.Within(t, fmt.Sprintf("the end of %d requests", n), time.Since(begin), time.Second)
	c.release()
	c.Close()
	check.Equal(t, "%d handlers were called for clients that had left", c.handlers.Load(), 0)
}

// net/http stops to watch a connection at the first byte behind a request.
func TestClientsThatPipelineAndLeaveDoNotWait(t *testing.T) {
	check.Long(t)
	const clients = 2000
	post := "POST /orders/42 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
	more := strings.Repeat("x", 8<<10)
	for name, c := range map[string]struct {
		clients int
		parts   []string // the second is sent once the request is served
	}{
		"at once":                    {clients, []string{post + more}},
		"while the request waits":    {clients, []string{post, more}},
		"one byte while it waits":    {80, []string{post, "P"}},
		"more than a window at once": {80, []string{post + strings.Repeat(more, 20)}},
	} {
		for _, over := range []string{"TCP", "TLS"} {
			t.Run(name+", over "+over, func(t *testing.T) {
				begin, client := (*httptest.Server).Start, func(c net.Conn) net.Conn { return c }
				if over == "TLS" {
					x := redistest.NewTLS(t)
					config := x.Stranger()
					config.ServerName = "127.0.0.1"
					config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
					config.MaxVersion = tls.VersionTLS12 // of 1.3, a session arrives after the handshake, at a client that reads
					begin, client = startTLS(t, x), func(c net.Conn) net.Conn { return tls.Client(c, config) }
				}
				s := newCrowd(t, begin, httplock.WithMaxWaiters(clients, clients))
				goroutines := runtime.NumGoroutine()
				var sent atomic.Int32
				var all sync.WaitGroup
				for range 8 {
					all.Go(func() {
						for range c.clients / 8 {
							raw, err := net.Dial("tcp", s.Listener.Addr().String())
							if err != nil {
								t.Error(err)
								return
							}
							conn := client(raw)
							for i, part := range c.parts {
								check.Done(t, check.Err(io.WriteString(conn, part)))
								if i == 0 {
									s.await(t, sent.Add(1))
								}
							}
							raw.Close()
						}
					})
				}
				all.Wait()
				s.left(t, int32(c.clients), goroutines)
			})
		}
	}
}

// startTLS starts a server with a certificate whose key signs fast.
func startTLS(t *testing.T, x *redistest.TLS) func(*httptest.Server) {
	cert, key := filepath.Join(x.Dir(), "server.crt"), filepath.Join(x.Dir(), "server.key")
	own := check.Value(tls.LoadX509KeyPair(cert, key)).In(t)
	return func(s *httptest.Server) {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
		s.StartTLS()
	}
}

// await waits until n requests have begun.
func (c *crowd) await(t *testing.T, n int32) {
	for end := time.Now().Add(middle.Patience); c.began.Load() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("not within %v: %d requests, %d have begun", middle.Patience, n, c.began.Load())
			return
		}
	}
}

// A server of HTTP/2 always reads its connections.
func TestClientsOfHTTP2ThatLeaveDoNotWait(t *testing.T) {
	check.Long(t)
	for _, over := range []string{"TCP", "TLS"} {
		t.Run("over "+over, func(t *testing.T) { clientsOfHTTP2ThatLeaveDoNotWait(t, over == "TLS") })
	}
}

func clientsOfHTTP2ThatLeaveDoNotWait(t *testing.T, overTLS bool) {
	const conns, streams = 8, 250 // of a connection no more streams are served at once
	var h2 http.Protocols
	h2.SetUnencryptedHTTP2(!overTLS)
	h2.SetHTTP2(overTLS)
	begin := func(s *httptest.Server) { s.Config.Protocols = &h2; s.Start() }
	if x := redistest.NewTLS(t); overTLS {
		begin = func(s *httptest.Server) { s.EnableHTTP2 = true; startTLS(t, x)(s) }
	}
	s := newCrowd(t, begin, httplock.WithMaxWaiters(conns*streams, conns*streams))
	goroutines := runtime.NumGoroutine()
	var all sync.WaitGroup
	for range conns {
		var conn net.Conn
		client := &http.Client{Transport: &http.Transport{Protocols: &h2,
			DialContext: func(context.Context, string, string) (c net.Conn, err error) {
				conn, err = net.Dial("tcp", s.Listener.Addr().String())
				return conn, err
			},
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		}}
		check.Value(client.Get(s.URL)).In(t).Body.Close() // connects
		for range streams {
			all.Go(func() {
				resp, err := client.Post(s.URL+"/orders/42", "", strings.NewReader(strings.Repeat("x", 8<<10)))
				if err == nil {
					resp.Body.Close()
					t.Errorf("answered with %d over %s", resp.StatusCode, resp.Proto)
				}
			})
		}
		all.Go(func() {
			s.await(t, conns*streams)
			conn.Close()
		})
	}
	all.Wait()
	s.left(t, conns*streams, goroutines)
}

// A client that pipelines is served in its turn, and its requests do not wait for a lock: it would not be noticed if it
// left.
func TestAPipelinedRequestIsServedOrRefused(t *testing.T) {
	locks := middle.InMemory(t, memory.New())
	served := make(chan string, 2)
	srv := serveByHand(t, httplock.New(locks, orders, httplock.WithMaxClientWait())(http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) { served <- r.URL.RawQuery })))
	two := "POST /orders/42?%s HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}" +
		"POST /orders/42?%s HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n" + strings.Repeat("x", 10_000)
	answers := func() (status []int) {
		c := dial(t, srv)
		fmt.Fprintf(c, two, "a", "b")
		in := bufio.NewReader(c)
		for range 2 {
			resp := check.Value(http.ReadResponse(in, nil)).In(t)
			check.Done(t, check.Err(io.Copy(io.Discard, resp.Body)))
			status = append(status, resp.StatusCode)
		}
		return status
	}
	check.Equal(t, "while the lock is free: %v", fmt.Sprint(answers()), "[200 200]")
	check.Equal(t, "served %s", <-served+<-served, "ab")
	held42(t, locks)
	c := dial(t, srv)
	fmt.Fprintf(c, two, "a", "b")
	status, body := answerOf(t, c)
	check.ErrorIf(t, status != 423, "while it is held: %d %s", status, body)
}
