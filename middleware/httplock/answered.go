package httplock

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"
)

// answered is a ResponseWriter that records whether an answer was begun. watch adds the optional interfaces of the
// underlying writer; http.ResponseController finds the underlying writer by Unwrap.
type answered struct {
	http.ResponseWriter
	written  atomic.Bool
	hijacked atomic.Bool
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
		a.written.Store(true)
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answered) Write(p []byte) (int, error) {
	a.written.Store(true)
	return a.ResponseWriter.Write(p)
}

func (a *answered) WriteString(s string) (int, error) {
	a.written.Store(true)
	return io.WriteString(a.ResponseWriter, s)
}

// FlushError is called by http.ResponseController.
func (a *answered) FlushError() error {
	err := http.NewResponseController(a.ResponseWriter).Flush()
	if err == nil {
		a.written.Store(true)
	}
	return err
}

type flusher struct {
	a *answered
	f http.Flusher
}

func (f flusher) Flush() {
	f.a.written.Store(true)
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

func (r readerFrom) ReadFrom(src io.Reader) (int64, error) {
	r.a.written.Store(true)
	return r.rf.ReadFrom(src)
}
