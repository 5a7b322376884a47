package httplock_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// unsized is a body whose length the client does not announce.
type unsized struct{ io.Reader }

// A server of HTTP/2 bounds the bytes of a connection's requests that no handler has read: 1 MiB for net/http. A
// request that waits with an unread body would stop the uploads of all others.
func TestARequestThatWaitsDoesNotStopOtherUploadsOfItsConnection(t *testing.T) {
	for name, c := range map[string]struct {
		waiters, size int
		status        int
		body          func(io.Reader) io.Reader
	}{
		"one large body":             {1, 1100 << 10, 423, func(r io.Reader) io.Reader { return r }},
		"one large body, unsized":    {1, 1100 << 10, 423, func(r io.Reader) io.Reader { return unsized{r} }},
		"many small bodies":          {30, 60 << 10, 200, func(r io.Reader) io.Reader { return r }},
		"many small bodies, unsized": {30, 60 << 10, 200, func(r io.Reader) io.Reader { return unsized{r} }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const upload = 1200 << 10
				lock := httplock.New(middle.InMemory(t, memory.New()), orders, httplock.WithWait(time.Minute))
				in := make(chan struct{}, 1+c.waiters)
				count := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					in <- struct{}{}
					n, err := io.Copy(io.Discard, r.Body)
					fmt.Fprint(w, n, err)
				})
				locked := lock(count)
				connect := serveByPipes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.PathValue("id") == "free" {
						count(w, r)
						return
					}
					locked.ServeHTTP(w, r)
				}))
				client := clientOf(t, "HTTP/2.0", connect)
				send := func(id string, body io.Reader) <-chan string {
					return middle.Async(func() string {
						req := check.Value(http.NewRequestWithContext(context.Background(), "POST", "http://x/orders/"+id, body)).In(t)
						a := sendWith(client, req)
						check.Done(t, a.err)
						return fmt.Sprintf("%d %.15s", a.StatusCode, a.body)
					})
				}
				begin := time.Now()
				from, to := io.Pipe()
				holder := send("42", from)
				check.Done(t, check.Err(to.Write(make([]byte, 1000))))
				<-in
				var waiters []<-chan string
				for range c.waiters {
					waiters = append(waiters, send("42", c.body(bytes.NewReader(make([]byte, c.size)))))
				}
				synctest.Wait() // the waiters have sent what they can
				check.Equal(t, "the route without a lock: %s", <-send("free", bytes.NewReader(make([]byte, upload))),
					fmt.Sprintf("200 %d <nil>", upload))
				check.Done(t, check.Err(to.Write(make([]byte, upload))))
				check.Done(t, to.Close())
				check.Equal(t, "the holder: %s", <-holder, fmt.Sprintf("200 %d <nil>", upload+1000))
				check.ErrorIf(t, time.Since(begin) >= time.Minute, "the uploads had to wait until a request gave up its wait")
				for _, w := range waiters {
					got := <-w
					check.ErrorIf(t, got[:3] != fmt.Sprint(c.status), "a waiter: %s", got)
				}
			})
		})
	}
}

// A client that asks before it sends its body is told to send a body that can be read ahead. A larger one is refused
// before it is sent.
func TestAClientThatExpects100ContinueSendsOnlyABodyThatWaits(t *testing.T) {
	for length, want := range map[int]string{60 << 10: "100 Continue, 200 61440", 1100 << 10: "423"} {
		t.Run(fmt.Sprint(length, " bytes"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := middle.InMemory(t, memory.New())
				held := middle.Holding(t, locks, middle.Order)
				lock := httplock.New(locks, orders, httplock.WithWait(time.Minute))
				connect := serveByPipes(t, lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					n, _ := io.Copy(io.Discard, r.Body)
					fmt.Fprint(w, n)
				})))
				c := connect()
				in := bufio.NewReader(c)
				fmt.Fprintf(c, "POST /orders/42 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", length)
				resp := check.Value(http.ReadResponse(in, nil)).In(t)
				got := fmt.Sprint(resp.StatusCode)
				if resp.StatusCode == http.StatusContinue {
					check.NoError(t, check.Err(c.Write(make([]byte, length))))
					synctest.Wait() // the request waits
					check.Done(t, held.Unlock(t.Context()))
					resp = check.Value(http.ReadResponse(in, nil)).In(t)
					got = fmt.Sprintf("100 Continue, %d %s", resp.StatusCode, check.Value(io.ReadAll(resp.Body)).In(t))
				}
				check.Equal(t, "answered %s", got, want)
			})
		})
	}
}

// The trailer of a body that was read ahead reaches the handler, and the connection serves the next request.
func TestABodyThatWaitedHasItsTrailerAndLeavesItsConnectionUsable(t *testing.T) {
	byEachVersion(t, func(t *testing.T, version string) {
		locks := middle.InMemory(t, memory.New())
		var conns atomic.Int32
		connect := serveByPipes(t, httplock.New(locks, orders, httplock.WithWait(time.Minute))(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				n, err := io.Copy(io.Discard, r.Body)
				fmt.Fprint(w, n, err, " ", r.Trailer.Get("Sum"))
			})))
		client := clientOf(t, version, func() net.Conn { conns.Add(1); return connect() })
		for range 3 {
			held := check.Value(locks.Lock(t.Context(), middle.Order)).In(t)
			req := check.Value(http.NewRequestWithContext(t.Context(), "POST", "http://x/orders/42",
				unsized{strings.NewReader(strings.Repeat("x", 60_000))})).In(t)
			req.Trailer = http.Header{"Sum": {"7"}}
			got := middle.Async(func() answer { return sendWith(client, req) })
			synctest.Wait() // the request waits
			check.Done(t, held.Unlock(t.Context()))
			a := <-got
			check.Done(t, a.err)
			check.Equal(t, "answered %s", a.body, "60000 <nil> 7")
		}
		check.Equal(t, "%d connections", conns.Load(), 1)
	})
}
