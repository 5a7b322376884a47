package httplock

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// answered is a ResponseWriter that records whether an answer was begun, and bounds writes after a loss. watch adds the
// optional interfaces of the underlying writer; http.ResponseController finds the underlying writer by Unwrap.
type answered struct {
	http.ResponseWriter
	written  atomic.Bool
	hijacked atomic.Bool
	flushed  atomic.Bool // net/http has sent the header, and before that read the body's rest

	finished atomic.Bool // the middleware has answered; what is written later is dropped

	body *watchedBody  // the request's body, set by wakeOnLoss
	in   *http.Request // the handler's; nil if it has none yet

	mu       sync.Mutex    // guards the fields below
	lost     bool          // the lock is lost: calls, and a hijacked connection, need deadlines
	calls    int           // writes and flushes that run
	since    time.Time     // when calls began to run, or the later loss
	spent    time.Duration // how long calls ran after the loss, without those that run
	timer    *time.Timer   // calls bound while calls run after the loss
	readsEnd time.Time     // the deadline for reads; zero for none
}

// begin begins a call that may be blocked in the connection.
func (a *answered) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	if a.calls == 1 && a.lost {
		a.since = time.Now()
		a.bound()
	}
}

// end ends a call.
func (a *answered) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls--
	if a.calls == 0 && a.lost {
		a.spent += time.Since(a.since)
		a.timer.Stop()
	}
}

// lose bounds the calls that run, and later calls.
func (a *answered) lose() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lost {
		return
	}
	a.lost, a.since = true, time.Now()
	a.timer = time.AfterFunc(lastRest, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.bound()
	})
}

// bound breaks running calls off when calls have run for lastWords after the loss, and before that net/http's read of
// the body's rest, with which a call may begin. a.mu is locked.
//
// The deadlines are set only for a call that still runs: HTTP/2 resets a stream at its deadline, and net/http may read
// the connection itself after a call has sent the header. A deadline would destroy the answer of a handler that
// returns late, or end the contexts of later requests.
func (a *answered) bound() {
	if a.calls == 0 {
		return
	}
	now := time.Now()
	running := now.Sub(a.since)
	left := lastWords - a.spent - running
	if (running >= lastRest || left <= 0) && !a.body.ended.Load() && !a.flushed.Load() {
		a.endReads(now)
	}
	switch {
	case left <= 0:
		http.NewResponseController(a.ResponseWriter).SetWriteDeadline(now)
	case running < lastRest:
		a.timer.Reset(min(left, lastRest-running))
	default:
		a.timer.Reset(left)
	}
}

// endReads sets the deadline for reads of the connection. The earliest deadline stands. a.mu is locked.
func (a *answered) endReads(at time.Time) {
	if a.readsEnd.IsZero() || at.Before(a.readsEnd) {
		a.readsEnd = at
		http.NewResponseController(a.ResponseWriter).SetReadDeadline(at)
	}
}

// breakReads ends the reads that run, and later reads.
func (a *answered) breakReads() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.endReads(time.Now())
}

// boundRest bounds the read of the body's rest with which the server begins to send an answer after the handler's
// return. The server removes the deadline then.
func (a *answered) boundRest() {
	if a.body.ended.Load() || a.flushed.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.endReads(time.Now().Add(lastRest))
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
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.lost { // net/http has removed the deadlines
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

// closeIfTooLarge makes the server close the connection after an answer that the body is too large, as
// http.MaxBytesReader does: MaxBytesReader tells net/http's ResponseWriter, but does not find it below this one. The
// handler's reader itself is not asked: another goroutine, of a proxy for example, may be reading.
func (a *answered) closeIfTooLarge(status int) {
	if status == http.StatusRequestEntityTooLarge && a.in != nil && a.in.ProtoMajor == 1 && !a.body.ended.Load() {
		a.Header().Set("Connection", "close")
	}
}

func (a *answered) WriteHeader(status int) {
	if a.finished.Load() {
		return
	}
	if status >= 200 && !a.written.Load() {
		a.closeIfTooLarge(status)
	}
	if status >= 200 || status == http.StatusSwitchingProtocols {
		a.written.Store(true)
	}
	a.begin() // net/http sends an informational header at once
	defer a.end()
	a.ResponseWriter.WriteHeader(status)
}

func (a *answered) Write(p []byte) (int, error) {
	if a.finished.Load() {
		return 0, errFinished
	}
	a.written.Store(true)
	a.begin()
	defer a.end()
	return a.ResponseWriter.Write(p)
}

// errFinished is the error of writes after the middleware has answered that the lock was lost: a second answer.
var errFinished = errors.New("httplock: the request was answered: its lock was lost while it was being worked on")

func (a *answered) WriteString(s string) (int, error) {
	if a.finished.Load() {
		return 0, errFinished
	}
	a.written.Store(true)
	a.begin()
	defer a.end()
	return io.WriteString(a.ResponseWriter, s)
}

// FlushError is called by http.ResponseController.
func (a *answered) FlushError() error {
	before := a.written.Swap(true)
	a.begin()
	defer a.end()
	err := http.NewResponseController(a.ResponseWriter).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		a.written.Store(before)
	} else {
		a.flushed.Store(true)
	}
	return err
}

type flusher struct {
	a *answered
	f http.Flusher
}

func (f flusher) Flush() {
	f.a.written.Store(true)
	f.a.begin()
	defer f.a.end()
	f.f.Flush()
	f.a.flushed.Store(true)
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
	if r.a.finished.Load() {
		return 0, errFinished
	}
	const first = 512 // as many as net/http reads to detect the type of the content
	if !r.a.written.Load() {
		if n, err = io.Copy(r.a, io.LimitReader(src, first)); err != nil || n < first {
			return n, err
		}
	}
	r.a.begin()
	defer r.a.end()
	rest, err := r.rf.ReadFrom(src)
	return n + rest, err
}
