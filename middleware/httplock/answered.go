package httplock

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// answered is a ResponseWriter that records whether an answer was begun. watch adds the optional interfaces of the
// underlying writer; http.ResponseController finds the underlying writer by Unwrap.
type answered struct {
	http.ResponseWriter
	written  atomic.Bool
	hijacked atomic.Bool
	lost     atomic.Bool // the lock is lost: the next write, or a hijacked connection, needs deadlines
}

// begin records that the answer is begun. wakeOnLoss bounds the writes of an answer begun before the loss, begin those
// of an answer begun after the loss. Until then there is no write deadline: HTTP/2 resets a stream at its deadline,
// and a handler that returns late could not be answered.
func (a *answered) begin() {
	if !a.written.Swap(true) && a.lost.Load() {
		a.boundWrites()
	}
}

func (a *answered) boundWrites() {
	http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(lastWords))
}

// below wraps an underlying writer that is no http.Hijacker. http.ResponseController may find a Hijacker by Unwrap
// further down; below records that hijacking.
type below struct {
	http.ResponseWriter
	a *answered
}

func (b below) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (b below) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return b.a.noteHijack(http.NewResponseController(b.ResponseWriter).Hijack())
}

func (a *answered) noteHijack(c net.Conn, rw *bufio.ReadWriter, err error) (net.Conn, *bufio.ReadWriter, error) {
	if err == nil {
		a.written.Store(true)
		a.hijacked.Store(true)
		if a.lost.Load() { // net/http has removed the deadlines
			c.SetReadDeadline(time.Now())
			c.SetWriteDeadline(time.Now().Add(lastWords))
		}
	}
	return c, rw, err
}

// watch wraps w in a writer that implements http.Flusher, http.Hijacker and io.ReaderFrom exactly where w does, so
// that a handler's type assertion gets the right answer.
func watch(w http.ResponseWriter) (http.ResponseWriter, *answered) {
	a := &answered{ResponseWriter: w}
	f, flushes := w.(http.Flusher)
	h, hijacks := w.(http.Hijacker)
	rf, reads := w.(io.ReaderFrom)
	switch {
	case flushes && hijacks && reads: // HTTP/1
		return &struct {
			*answered
			flusher
			hijacker
			readerFrom
		}{a, flusher{a, f}, hijacker{a, h}, readerFrom{a, rf}}, a
	case flushes && hijacks:
		return &struct {
			*answered
			flusher
			hijacker
		}{a, flusher{a, f}, hijacker{a, h}}, a
	case flushes && reads:
		return &struct {
			*answered
			flusher
			readerFrom
		}{a, flusher{a, f}, readerFrom{a, rf}}, a
	case hijacks && reads:
		return &struct {
			*answered
			hijacker
			readerFrom
		}{a, hijacker{a, h}, readerFrom{a, rf}}, a
	case flushes: // HTTP/2
		return &struct {
			*answered
			flusher
		}{a, flusher{a, f}}, a
	case hijacks:
		return &struct {
			*answered
			hijacker
		}{a, hijacker{a, h}}, a
	case reads:
		return &struct {
			*answered
			readerFrom
		}{a, readerFrom{a, rf}}, a
	}
	return a, a
}

func (a *answered) Unwrap() http.ResponseWriter {
	if _, hijacks := a.ResponseWriter.(http.Hijacker); hijacks {
		return a.ResponseWriter
	}
	return below{a.ResponseWriter, a}
}

func (a *answered) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		a.begin()
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answered) Write(p []byte) (int, error) {
	a.begin()
	return a.ResponseWriter.Write(p)
}

func (a *answered) WriteString(s string) (int, error) {
	a.begin()
	return io.WriteString(a.ResponseWriter, s)
}

// FlushError is called by http.ResponseController.
func (a *answered) FlushError() error {
	before := a.written.Load()
	a.begin()
	err := http.NewResponseController(a.ResponseWriter).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		a.written.Store(before)
	}
	return err
}

type flusher struct {
	a *answered
	f http.Flusher
}

func (f flusher) Flush() {
	f.a.begin()
	f.f.Flush()
}

type hijacker struct {
	a *answered
	h http.Hijacker
}

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.a.noteHijack(h.h.Hijack())
}

type readerFrom struct {
	a  *answered
	rf io.ReaderFrom
}

// ReadFrom writes the first bytes itself: a source without a byte begins no answer, but the writer below may begin one
// before it reads.
func (r readerFrom) ReadFrom(src io.Reader) (n int64, err error) {
	const first = 512 // as many as net/http reads to detect the type of the content
	if !r.a.written.Load() {
		if n, err = io.Copy(r.a, io.LimitReader(src, first)); err != nil || n < first {
			return n, err
		}
	}
	rest, err := r.rf.ReadFrom(src)
	return n + rest, err
}
