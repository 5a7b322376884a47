package httplock_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// These tests run a server and its clients in a bubble of synctest: the connections are pipes, whose writes are blocked
// until the other side reads.

// pipes is a listener of pipes.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error { close(p.closed); return nil }

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// serveByPipes serves h at /orders/{id} in the test's bubble, by HTTP/1 and HTTP/2. connect makes a connection.
func serveByPipes(t *testing.T, h http.Handler) (connect func() net.Conn) {
	p := pipes{make(chan net.Conn), make(chan struct{})}
	mux := http.NewServeMux()
	var handlers sync.WaitGroup
	mux.HandleFunc("/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		handlers.Add(1)
		defer handlers.Done()
		h.ServeHTTP(w, r)
	})
	srv := &http.Server{Handler: mux, ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	go srv.Serve(p)
	t.Cleanup(func() {
		srv.Close()
		handlers.Wait()
	})
	return func() net.Conn {
		c := check.Value(p.dial(t.Context(), "", "")).In(t)
		t.Cleanup(func() { c.Close() })
		return c
	}
}

// clientOf is a client of HTTP/1 or HTTP/2.
func clientOf(t *testing.T, version string, connect func() net.Conn) *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols),
		DialContext: func(context.Context, string, string) (net.Conn, error) { return connect(), nil }}
	tr.Protocols.SetHTTP1(version == "HTTP/1.1")
	tr.Protocols.SetUnencryptedHTTP2(version == "HTTP/2.0")
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// byEachVersion runs the test in a bubble for HTTP/1 and for HTTP/2.
func byEachVersion(t *testing.T, test func(t *testing.T, version string)) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, version) })
		})
	}
}

// A handler that has answered may return long after the loss: its answer is sent.
func TestTheAnswerOfALateHandlerIsSent(t *testing.T) {
	answer := func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "created 7")
	}
	for when, h := range map[string]http.HandlerFunc{
		"before the loss":     func(w http.ResponseWriter, r *http.Request) { answer(w); <-r.Context().Done() },
		"after the loss":      func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done(); answer(w) },
		"long after the loss": func(w http.ResponseWriter, r *http.Request) { time.Sleep(time.Hour); answer(w) },
	} {
		t.Run("answered "+when, func(t *testing.T) {
			byEachVersion(t, func(t *testing.T, version string) {
				connect := serveByPipes(t, heldShortly(t, time.Second)(http.HandlerFunc(
					func(w http.ResponseWriter, r *http.Request) {
						h(w, r)
						time.Sleep(time.Minute) // longer than writes may take after the loss
					})))
				resp, err := clientOf(t, version, connect).Get("http://x/orders/42")
				check.FatalIf(t, err != nil, "no answer: %v", err)
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				check.ErrorIf(t, err != nil || resp.Proto != version || resp.StatusCode != 201 || string(body) != "created 7",
					"%s %d %s, %v", resp.Proto, resp.StatusCode, body, err)
			})
		})
	}
}

// A client that does not read, or reads a little every second, does not keep a handler in writes for longer than 2 s
// after the loss, whenever its writes begin.
func TestAfterALossWritesTakeTwoSecondsInAll(t *testing.T) {
	for when, late := range map[string]time.Duration{"before": 0, "after": time.Minute} {
		for how, pause := range map[string]time.Duration{"does not read": time.Hour, "reads slowly": time.Second} {
			t.Run(fmt.Sprintf("begun %s the loss to a client that %s", when, how), func(t *testing.T) {
				byEachVersion(t, func(t *testing.T, version string) {
					ended := make(chan time.Duration, 1)
					connect := serveByPipes(t, heldShortly(t, time.Second)(http.HandlerFunc(
						func(w http.ResponseWriter, r *http.Request) {
							begun := time.Now()
							time.Sleep(late)
							for part := make([]byte, 64<<10); ; {
								if _, err := w.Write(part); err != nil {
									ended <- time.Since(begun)
									return
								}
							}
						})))
					go read(t, clientOf(t, version, connect), pause)
					check.Equal(t, "the handler is back after %v", <-ended, max(late, time.Second)+2*time.Second)
				})
			})
		}
	}
}

// read sends a request, and reads some of the answer after each pause, until the test ends.
func read(t *testing.T, client *http.Client, pause time.Duration) {
	req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://x/orders/42", nil)
	resp, err := client.Do(req)
	for err == nil {
		select {
		case <-time.After(pause):
		case <-t.Context().Done():
		}
		_, err = io.CopyN(io.Discard, resp.Body, 64<<10)
	}
}

// A client may send a body in parts, each after the answer to the one before. A request that may wait reads its body
// ahead, but the handler gets each part when it arrives.
func TestABodyInPartsIsHandedOverInParts(t *testing.T) {
	httplock.SetAheadWait(t, time.Second)
	synctest.Test(t, func(t *testing.T) {
		conn := serveByPipes(t, httplock.New(middle.InMemory(t, memory.New()), orders,
			httplock.WithWait(time.Minute))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			check.Done(t, rc.EnableFullDuplex())
			for part := make([]byte, 2); ; {
				if _, err := io.ReadFull(r.Body, part); err != nil {
					fmt.Fprint(w, err, r.Context().Err())
					return
				}
				fmt.Fprintf(w, "%s\n", part)
				check.Done(t, rc.Flush())
			}
		})))()
		conn.SetDeadline(time.Now().Add(time.Hour))
		fmt.Fprint(conn, "POST /orders/42 HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nab")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		check.FatalIf(t, err != nil, "no answer to the first part: %v", err)
		in := bufio.NewReader(resp.Body)
		for _, part := range []struct{ want, next string }{{"ab\n", "cd"}, {"cd\n", "ef"}, {"ef\n", ""}} {
			line, err := in.ReadString('\n')
			check.FatalIf(t, err != nil || line != part.want, "got %q, %v, want %q", line, err, part.want)
			if part.next != "" { // an empty write to a pipe waits for a reader
				io.WriteString(conn, part.next)
			}
		}
		end, err := io.ReadAll(in)
		check.ErrorIf(t, err != nil || string(end) != "EOF <nil>", "the end is %q, %v", end, err)
	})
}
