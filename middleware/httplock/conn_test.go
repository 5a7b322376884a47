package httplock_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// These tests speak HTTP/1 by hand: what matters is what a client sends when, and when it leaves.

func serveByHand(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/orders/{id}", h)
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

func dial(t *testing.T, srv *httptest.Server) *net.TCPConn {
	t.Helper()
	c := check.Value(net.Dial("tcp", srv.Listener.Addr().String())).In(t)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(middle.Patience))
	return c.(*net.TCPConn)
}

const chunked = "POST /orders/42 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

func chunk(n int) string { return fmt.Sprintf("%x\r\n%s\r\n", n, strings.Repeat("x", n)) }

// answerOf reads an answer and its body.
func answerOf(t *testing.T, c net.Conn) (status int, body string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	check.FatalIf(t, err != nil, "no answer: %v", err)
	b, err := io.ReadAll(resp.Body)
	check.FatalIf(t, err != nil, "half an answer: %v", err)
	return resp.StatusCode, string(b)
}

// held42 holds the lock that the requests want.
func held42(t *testing.T, locks *mortise.Client) (release func()) {
	t.Helper()
	lease := check.Value(locks.Lock(context.Background(), "orders:42")).In(t)
	release = sync.OnceFunc(func() { check.Done(t, lease.Unlock(context.Background())) })
	t.Cleanup(release) // or the server would not close
	return release
}

func TestClientsThatSentAChunkedBodyAndLeftDoNotWait(t *testing.T) {
	for name, wait := range map[string]httplock.Option{
		"WithWait":          httplock.WithWait(middle.Patience),
		"WithMaxClientWait": httplock.WithMaxClientWait(),
	} {
		for what, body := range map[string]string{
			"whole":    chunk(2) + "0\r\n\r\n",
			"half":     chunk(2),
			"too much": chunk(40<<10) + chunk(40<<10),
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				const clients = 20
				locks := middle.InMemory(t, memory.New())
				var handlers atomic.Int32
				began, problems := make(chan struct{}, clients), make(chan httplock.Problem, clients)
				key := func(r *http.Request) (string, error) { began <- struct{}{}; return orders(r) }
				srv := serveByHand(t, httplock.New(locks, key, wait, httplock.WithErrorHandler(
					func(w http.ResponseWriter, r *http.Request, p httplock.Problem) { p.ServeHTTP(w, r); problems <- p }))(
					http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handlers.Add(1) })))
				release := held42(t, locks)
				for range clients {
					c := dial(t, srv)
					check.NoError(t, check.Err(io.WriteString(c, chunked+body)))
					middle.Receive(t, "the request", began)
					c.Close()
				}
				for range clients {
					select {
					case p := <-problems:
						check.ErrorIf(t, p.Type != httplock.TypeClientGone && p.Type != httplock.TypeLocked, "%s: %v", p.Type, p.Err)
					case <-time.After(middle.Patience):
						t.Errorf("a client has left, and its request waits on after %v", middle.Patience)
					}
					if t.Failed() {
						break
					}
				}
				release()
				srv.Close() // waits for all that is being served
				n := handlers.Load()
				check.ErrorIf(t, n != 0, "%d handlers were called for %d clients, all of which had left", n, clients)
			})
		}
	}
}

// A chunked body that has come is no reason to be refused: the handler gets all of it, and its trailer, announced or
// not.
func TestAChunkedBodyThatHasComeWaits(t *testing.T) {
	t.Run("announced", func(t *testing.T) { aChunkedBodyThatHasComeWaits(t, "\r\nTrailer: Sum") })
	t.Run("not announced", func(t *testing.T) { aChunkedBodyThatHasComeWaits(t, "") })
}

func aChunkedBodyThatHasComeWaits(t *testing.T, announced string) {
	locks := middle.InMemory(t, memory.New())
	began := make(chan struct{}, 1)
	key := func(r *http.Request) (string, error) { began <- struct{}{}; return orders(r) }
	srv := serveByHand(t, httplock.New(locks, key,
		httplock.WithWait(middle.Patience))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		fmt.Fprint(w, len(b), err, r.Trailer.Get("Sum"))
	})))
	release := held42(t, locks)
	c := dial(t, srv)
	fmt.Fprint(c, strings.Replace(chunked, "\r\n\r\n", announced+"\r\n\r\n", 1)+chunk(60_000)+"0\r\nSum: 7\r\n\r\n")
	middle.Receive(t, "the request", began)
	release()
	status, body := answerOf(t, c)
	check.ErrorIf(t, status != 200 || body != "60000 <nil>7", "%d %s", status, body)
}

// A client that waits for an answer before it sends the rest of its body is served while the lock
// is free, and refused while it is held: it would be noticed by nothing that it has left.
func TestABodyThatDoesNotEndIsServedOrRefused(t *testing.T) {
	httplock.SetAheadWait(t, 50*time.Millisecond)
	locks := middle.InMemory(t, memory.New())
	srv := serveByHand(t, httplock.New(locks, orders,
		httplock.WithMaxClientWait())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		b := make([]byte, 2)
		n, err := io.ReadFull(r.Body, b)
		fmt.Fprint(w, n, err)
	})))
	c := dial(t, srv)
	fmt.Fprint(c, chunked+chunk(2))
	status, body := answerOf(t, c)
	check.ErrorIf(t, status != 200 || body != "2 <nil>", "while it is free: %d %s", status, body)
	held42(t, locks)
	for what, request := range map[string]string{
		"chunked":           chunked + chunk(2),
		"of a known length": "POST /orders/42 HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nxx",
		"long": "POST /orders/42 HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x",
			100_000),
	} {
		c := dial(t, srv)
		fmt.Fprint(c, request)
		status, body := answerOf(t, c)
		check.ErrorIf(t, status != 423, "%s: %d %s", what, status, body)
	}
}

// unwrapped is a writer of a middleware that has Unwrap, and of the rest only what it needs.
type unwrapped struct{ http.ResponseWriter }

func (u unwrapped) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// hang is a handler that is blocked in its connection.
type hang struct {
	request string
	handler func(http.ResponseWriter, *http.Request) error
}

var (
	inABody = hang{
		chunked + chunk(2),
		func(_ http.ResponseWriter, r *http.Request) error { return check.Err(io.Copy(io.Discard, r.Body)) },
	}
	inAnAnswer = hang{
		"GET /orders/42 HTTP/1.1\r\nHost: x\r\n\r\n",
		func(w http.ResponseWriter, _ *http.Request) error {
			part := make([]byte, 1<<20)
			for {
				if _, err := w.Write(part); err != nil {
					return err
				}
			}
		},
	}
)

// ends sends the request, and checks that the handler is woken, which ended tells. A body that does not come is
// answered.
func (h hang) ends(t *testing.T, srv *httptest.Server, ended <-chan error) {
	t.Helper()
	c := dial(t, srv)
	fmt.Fprint(c, h.request)
	check.ErrorIf(t, middle.Receive(t, "the handler's end", ended) == nil, "it read or wrote to the end")
	if h.request == inABody.request {
		status, body := answerOf(t, c)
		check.ErrorIf(t, status != 500 || !strings.Contains(body, httplock.TypeLost), "the answer is %d %s", status, body)
	}
}

// A handler that hangs in its connection is woken when its lock is lost, so that it does not stay
// beside the next holder.
func TestAHandlerThatHangsInItsConnectionIsWokenByTheLoss(t *testing.T) {
	check.Long(t)
	hangs := map[string]hang{
		"a body that does not come":  inABody,
		"an answer that is not read": inAnAnswer,
		"a silent stream, by a writer that is unwrapped": {
			"GET /orders/42 HTTP/1.1\r\nHost: x\r\nWrap: yes\r\n\r\n",
			func(w http.ResponseWriter, _ *http.Request) error {
				c, rw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					return err
				}
				defer c.Close()
				_, err = rw.ReadString('\n')
				return err
			},
		},
		"a silent stream": {
			"GET /orders/42 HTTP/1.1\r\nHost: x\r\n\r\n",
			func(w http.ResponseWriter, _ *http.Request) error {
				c, rw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					return err
				}
				defer c.Close()
				_, err = rw.ReadString('\n')
				return err
			},
		},
	}
	for what, h := range hangs {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			locks := middle.InMemory(t, memory.New())
			ended := make(chan error, 1)
			lock := httplock.New(locks, orders, httplock.WithLockOptions(mortise.WithMaxHold(200*time.Millisecond)))(
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					err := h.handler(w, r)
					cause := context.Cause(r.Context())
					check.ErrorIf(t, !errors.Is(cause, mortise.ErrLost), "the handler is back by %v, its context by %v", err, cause)
					ended <- err
				}))
			srv := serveByHand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Wrap") != "" {
					w = unwrapped{w}
				}
				lock.ServeHTTP(w, r)
			}))
			h.ends(t, srv, ended)
		})
	}
}

// A loss touches only the request that lost: neither the deadline nor the end of a context is left
// on the connection, and a context above the lease's lives on.
func TestALossLeavesTheConnectionUsable(t *testing.T) {
	for name, c := range map[string]usableAfterALoss{
		"refusing": {handler: readsAll},
		"waiting":  {handler: readsNothing, opts: []httplock.Option{httplock.WithWait(middle.Patience)}}, // read ahead
		// The body of a request without a body is not http.NoBody below http.MaxBytesHandler.
		"bounded by MaxBytesHandler": {
			handler: readsAll,
			outer:   func(h http.Handler) http.Handler { return http.MaxBytesHandler(h, 1<<20) },
		},
		"bounded by MaxBytesHandler, and not read": {
			handler: func(in *http.Request) {
				if in.ContentLength > 0 {
					readsAll(in)
				}
			},
			outer: func(h http.Handler) http.Handler { return http.MaxBytesHandler(h, 1<<20) },
		},
		"buffered outside, and read as JSON": {
			handler: func(in *http.Request) { json.NewDecoder(in.Body).Decode(new(struct{})) },
			outer:   buffers,
		},
		"buffered outside, and not read": {handler: readsNothing, outer: buffers},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, c.test) })
	}
}

func readsAll(in *http.Request) { io.Copy(io.Discard, in.Body) }

func readsNothing(*http.Request) {}

// buffers is a middleware that reads bodies to their end and hands on copies.
func buffers(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		whole, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(whole))
		h.ServeHTTP(w, r)
	})
}

// usableAfterALoss is a service whose POST requests lose their lock after handler has returned.
type usableAfterALoss struct {
	handler func(in *http.Request)
	opts    []httplock.Option
	outer   func(http.Handler) http.Handler // may be nil
}

func (c usableAfterALoss) test(t *testing.T) {
	locks := middle.InMemory(t, memory.New())
	above := make(chan error, 1)
	lock := httplock.New(locks, orders,
		append(c.opts, httplock.WithLockOptions(mortise.WithMaxHold(100*time.Millisecond)))...)
	h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock(http.HandlerFunc(func(_ http.ResponseWriter, in *http.Request) {
			c.handler(in)
			if r.Method == "POST" {
				<-in.Context().Done()
				time.Sleep(50 * time.Millisecond) // in which the end of the server's read would end the context
			}
		})).ServeHTTP(w, r)
		above <- r.Context().Err()
	}))
	if c.outer != nil {
		h = c.outer(h)
	}
	conn := serveByPipes(t, h)()
	in := bufio.NewReader(conn)
	for _, want := range []struct {
		request string
		status  int
	}{
		{"POST /orders/42 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 500},
		{"PUT /orders/42 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 200},
		{"POST /orders/42 HTTP/1.1\r\nHost: x\r\n\r\n", 500},
		{"GET /orders/42 HTTP/1.1\r\nHost: x\r\n\r\n", 200},
	} {
		fmt.Fprint(conn, want.request)
		resp, err := http.ReadResponse(in, nil)
		check.FatalIf(t, err != nil, "%q: %v", want.request, err)
		io.Copy(io.Discard, resp.Body)
		check.ErrorIf(t, resp.StatusCode != want.status, "%q: %d, want %d", want.request, resp.StatusCode, want.status)
		if err := middle.Receive(t, "the handler's end", above); err != nil {
			t.Errorf("%q: the request's own context has ended: %v", want.request, err)
		}
	}
}

// After the header was sent, net/http reads the connection itself, though the handler has not read the body.
func TestALossAfterAFlushLeavesTheConnectionUsable(t *testing.T) {
	for name, flush := range map[string]func(http.ResponseWriter){
		"by the controller": func(w http.ResponseWriter) { http.NewResponseController(w).Flush() },
		"by the Flusher":    func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			aLossAfterAnAnswer(t, func(w http.ResponseWriter) {
				w.Header().Set("Content-Length", "2")
				io.WriteString(w, "ok")
				flush(w)
			})
		})
	}
}

// net/http reads the body's rest before an answer that is larger than its buffer, and then reads the connection itself.
func TestALossAfterALargeAnswerLeavesTheConnectionUsable(t *testing.T) {
	aLossAfterAnAnswer(t, func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", "65536")
		w.Write(make([]byte, 65536))
	})
}

// aLossAfterAnAnswer checks that a connection is usable after a request that lost its lock after its answer.
func aLossAfterAnAnswer(t *testing.T, answer func(http.ResponseWriter)) {
	synctest.Test(t, func(t *testing.T) {
		above := make(chan error, 1)
		lock := heldShortly(t, time.Second)
		conn := serveByPipes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			lock(http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
				answer(w)
				if in.Method == "POST" {
					<-in.Context().Done()
					time.Sleep(httplock.LastRest + 200*time.Millisecond) // in which the read's end would end the context
				}
			})).ServeHTTP(w, r)
			above <- r.Context().Err()
		}))()
		in := bufio.NewReader(conn)
		for _, method := range []string{"POST", "PUT"} {
			fmt.Fprintf(conn, "%s /orders/42 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", method)
			resp := check.Value(http.ReadResponse(in, nil)).In(t)
			io.Copy(io.Discard, resp.Body)
			check.Equal(t, method+": %d", resp.StatusCode, 200)
			if err := middle.Receive(t, "the handler's end", above); err != nil {
				t.Errorf("%s: the request's own context has ended: %v", method, err)
			}
		}
	})
}

// A read that goes on in a file, for example, needs no deadline on the connection.
func TestALossWhileABodyOutsideOfTheConnectionIsReadLeavesTheConnectionUsable(t *testing.T) {
	httplock.SetReadWait(t, middle.Patience)
	synctest.Test(t, func(t *testing.T) {
		lost := make(chan struct{}, 2)
		usableAfterALoss{
			handler: func(in *http.Request) {
				context.AfterFunc(in.Context(), func() { lost <- struct{}{} })
				if in.Method == "POST" {
					check.Is(t, "reading", check.Err(io.Copy(io.Discard, in.Body)), mortise.ErrLost)
				}
			},
			outer: func(h http.Handler) http.Handler {
				return buffers(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					r.ContentLength, r.Body = -1, io.NopCloser(endlessAfter{lost})
					h.ServeHTTP(w, r)
				}))
			},
		}.test(t)
	})
}

// endlessAfter is a body without an end, whose first read takes until after a loss.
type endlessAfter struct{ lost <-chan struct{} }

func (b endlessAfter) Read([]byte) (int, error) {
	select {
	case <-b.lost:
	case <-time.After(middle.Patience):
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(20 * time.Millisecond) // in which the deadline would be set
	return 1, nil
}

// The server reads from the start where there is no body, whatever r.Body is: no deadline of a write may end that read.
func TestALateEndOfAnAnswerWithoutABodyToReadLeavesTheContextAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		above := make(chan error, 1)
		lock := heldShortly(t, time.Second)
		c := serveByPipes(t, http.MaxBytesHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			lock(http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
				fmt.Fprint(w, "begun")
				check.Done(t, http.NewResponseController(w).Flush())
				<-in.Context().Done()
				time.Sleep(1700 * time.Millisecond) // less than a write may take after the loss
			})).ServeHTTP(w, r)
			above <- r.Context().Err()
		}), 1<<20))()
		fmt.Fprint(c, "POST /orders/42 HTTP/1.1\r\nHost: x\r\n\r\n")
		status, body := answerOf(t, c)
		check.ErrorIf(t, status != 200 || body != "begun", "answered %d %s", status, body)
		err := middle.Receive(t, "the handler's end", above)
		check.ErrorIf(t, err != nil, "the request's own context has ended: %v", err)
	})
}

// A body that comes slowly keeps its request from waiting, and from nothing else: it is served whole
// if the lock is free, and refused as locked if another client has the lock.
func TestABodyThatComesSlowlyIsServedOrRefused(t *testing.T) {
	httplock.SetAheadWait(t, 20*time.Millisecond)
	store := memory.New()
	locks, tried := middle.InMemory(t, store), make(chan struct{}, 1)
	srv := serveByHand(t, httplock.New(locks, orders,
		httplock.WithMaxClientWait())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tried <- struct{}{}
		b, err := io.ReadAll(r.Body)
		fmt.Fprint(w, string(b), err, r.Context().Err())
	})))
	const slow = "POST /orders/42 HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab"
	c := dial(t, srv)
	fmt.Fprint(c, slow)
	middle.Receive(t, "the handler", tried)
	fmt.Fprint(c, "cd")
	status, body := answerOf(t, c)
	check.ErrorIf(t, status != 200 || body != "abcd<nil> <nil>", "while it is free: %d %s", status, body)
	held42(t, middle.InMemory(t, store))
	c = dial(t, srv)
	fmt.Fprint(c, slow)
	status, body = answerOf(t, c)
	check.ErrorIf(t, status != 423, "while it is held: %d %s", status, body)
}

// A handler that does not read a body that has not come answers all the same, and one that waits for
// it is woken when the lock is lost.
func TestABodyThatDoesNotComeHoldsNothingUp(t *testing.T) {
	check.Long(t)
	httplock.SetAheadWait(t, 20*time.Millisecond)
	locks := middle.InMemory(t, memory.New())
	srv := serveByHand(t, httplock.New(locks, orders, httplock.WithMaxClientWait(),
		httplock.WithLockOptions(mortise.WithMaxHold(200*time.Millisecond)))(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Read") != "" {
				io.Copy(io.Discard, r.Body)
				return
			}
			fmt.Fprint(w, "done")
		})))
	for header, want := range map[string]int{"": 200, "Read: yes\r\n": 500} {
		c := dial(t, srv)
		fmt.Fprint(c, "POST /orders/42 HTTP/1.1\r\nHost: x\r\n"+header+"Content-Length: 4\r\n\r\nab")
		status, body := answerOf(t, c)
		check.ErrorIf(t, status != want, "%q: %d %s, want %d", header, status, body, want)
	}
}

// The server reads a body that is closed early to its end, and then itself: a loss after that touches
// the request's own context no more than otherwise.
func TestALossAfterABodyWasClosedLeavesTheContextAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		above := make(chan error, 1)
		lock := heldShortly(t, time.Second)
		c := serveByPipes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			lock(http.HandlerFunc(func(_ http.ResponseWriter, in *http.Request) {
				in.Body.Close()
				<-in.Context().Done()
				time.Sleep(50 * time.Millisecond) // in which the end of a read would end the context
			})).ServeHTTP(w, r)
			above <- r.Context().Err()
		}))()
		fmt.Fprint(c, chunked+chunk(2)+"0\r\n\r\n")
		status, body := answerOf(t, c)
		check.ErrorIf(t, status != 500, "answered %d %s", status, body)
		err := middle.Receive(t, "the handler's end", above)
		check.ErrorIf(t, err != nil, "the request's own context has ended: %v", err)
	})
}

// The rest of a body that a handler has not begun to read holds neither the handler nor the answer up after the loss:
// net/http reads a body's rest before the answer.
func TestAfterALossTheRestOfABodyHoldsNothingUp(t *testing.T) {
	check.Long(t)
	for what, handler := range map[string]func(w http.ResponseWriter, r *http.Request) error{
		"a read after the loss": func(_ http.ResponseWriter, r *http.Request) error {
			<-r.Context().Done()
			return check.Err(io.Copy(io.Discard, r.Body))
		},
		"a close after the loss": func(_ http.ResponseWriter, r *http.Request) error {
			<-r.Context().Done()
			return r.Body.Close()
		},
		"a close before the loss": func(_ http.ResponseWriter, r *http.Request) error { return r.Body.Close() },
		"a write begun before the loss": func(w http.ResponseWriter, _ *http.Request) error {
			return check.Err(w.Write(make([]byte, 64<<10)))
		},
		"a write after the loss": func(w http.ResponseWriter, r *http.Request) error {
			<-r.Context().Done()
			return check.Err(w.Write(make([]byte, 64<<10)))
		},
		"the answer of the middleware": func(_ http.ResponseWriter, r *http.Request) error {
			<-r.Context().Done()
			return nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ended := make(chan error, 1)
			srv := serveByHand(t, heldShortly(t, 100*time.Millisecond)(http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) { ended <- handler(w, r) })))
			c := dial(t, srv)
			fmt.Fprint(c, "POST /orders/42 HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
			t.Logf("the handler is back by %v", middle.Receive(t, "the handler's end", ended))
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			check.FatalIf(t, err != nil, "no answer: %v", err)
			written := strings.Contains(what, "a write")
			check.ErrorIf(t, written != (resp.StatusCode == 200) || written != (resp.StatusCode != 500), "%s", resp.Status)
		})
	}
}

// A request's context may end before the lock is lost: by a time limit of a middleware outside.
func TestALossAfterTheContextAboveEndedWakesTheHandler(t *testing.T) {
	check.Long(t)
	for what, h := range map[string]hang{
		"a body that does not come":  inABody,
		"an answer that is not read": inAnAnswer,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ended := make(chan error, 1)
			lock := heldShortly(t, 200*time.Millisecond)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				err := h.handler(w, r)
				check.ErrorIf(t, !errors.Is(context.Cause(r.Context()), context.DeadlineExceeded),
					"the context ended by %v", context.Cause(r.Context()))
				check.Is(t, "the lease", httplock.Lease(r.Context()).Err(), mortise.ErrLost)
				ended <- err
			}))
			srv := serveByHand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithTimeout(r.Context(), 50*time.Millisecond)
				defer cancel()
				lock.ServeHTTP(w, r.WithContext(ctx))
			}))
			h.ends(t, srv, ended)
		})
	}
}
