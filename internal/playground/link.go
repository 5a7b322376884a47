package playground

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/mortise-go/mortise/backend"
)

// frame is a message: a request and its reply have one ID, an event has none.
type frame struct {
	ID    uint64          `json:"id,omitempty"`
	Op    string          `json:"op,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
	Fault *fault          `json:"fault,omitempty"`
}

// encode returns the message of a frame with a body. It panics if a body is no JSON: bodies are types of this package
// and of package backend.
func encode(f frame, body any) []byte {
	var err error
	if f.Body, err = json.Marshal(body); err == nil {
		var message []byte
		if message, err = json.Marshal(f); err == nil {
			return message
		}
	}
	panic(err)
}

// fault is a [backend.Fault] in a message.
type fault struct {
	Text       string `json:"text"`
	Cause      string `json:"cause,omitempty"`
	Remedy     string `json:"remedy,omitempty"`
	MayHaveRun bool   `json:"mayHaveRun,omitempty"`
	Temporary  bool   `json:"temporary,omitempty"`
}

// causes are the errors that callers test for, by their names in messages.
var causes = map[string]error{"kind": backend.ErrWrongKind, "closed": backend.ErrSessionClosed}

func faultOf(err error) *fault {
	if err == nil {
		return nil
	}
	f := backend.FaultOf(err)
	out := &fault{Text: f.Err.Error(), Remedy: f.Remedy, MayHaveRun: f.MayHaveRun, Temporary: f.Temporary}
	for name, cause := range causes {
		if errors.Is(err, cause) {
			out.Cause = name
		}
	}
	return out
}

func (f *fault) err() error {
	if f == nil {
		return nil
	}
	return &backend.Fault{Err: remoteError{f.Text, causes[f.Cause]}, Remedy: f.Remedy,
		MayHaveRun: f.MayHaveRun, Temporary: f.Temporary}
}

// remoteError has the text of an error at the other end, and its cause if that is one of causes.
type remoteError struct {
	text  string
	cause error
}

func (e remoteError) Error() string { return e.text }
func (e remoteError) Unwrap() error { return e.cause }

// Link is the calling end of a connection to a [Host].
type Link struct {
	send func(message []byte)

	mu      sync.Mutex
	last    uint64
	answers map[uint64]chan frame
	closed  bool

	telling sync.Mutex  // held while event runs
	event   func(frame) // guarded by telling; nil if the link takes no events
}

// NewLink makes a link. It calls send for each message, in order; send must not wait. Pass each message of the other
// end to Receive.
func NewLink(send func(message []byte)) *Link {
	return &Link{send: send, answers: make(map[uint64]chan frame)}
}

// Receive takes a message of the host.
func (l *Link) Receive(message []byte) {
	var f frame
	if err := json.Unmarshal(message, &f); err != nil {
		panic(err)
	}
	if f.ID == 0 {
		l.tell(f)
		return
	}
	l.mu.Lock()
	answer := l.answers[f.ID]
	delete(l.answers, f.ID)
	l.mu.Unlock()
	if answer != nil {
		answer <- f
	}
}

func (l *Link) tell(f frame) {
	l.telling.Lock()
	defer l.telling.Unlock()
	if l.event != nil && !l.over() {
		l.event(f)
	}
}

func (l *Link) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// close ends the link. After close has returned, event is not called.
func (l *Link) close() {
	l.mu.Lock()
	was := l.closed
	l.closed = true
	l.mu.Unlock()
	if !was {
		l.send(encode(frame{Op: "close"}, nil))
	}
	l.telling.Lock()
	defer l.telling.Unlock()
	l.event = nil
}

// expect registers a request; its id is 0 if the link is closed.
func (l *Link) expect() (uint64, chan frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, nil
	}
	l.last++
	answer := make(chan frame, 1)
	l.answers[l.last] = answer
	return l.last, answer
}

func (l *Link) forget(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.answers, id)
}

// call sends a request and waits for its reply. An error is a [*backend.Fault].
func call[A, R any](ctx context.Context, l *Link, op string, in A) (out R, err error) {
	if err := ctx.Err(); err != nil {
		return out, &backend.Fault{Err: err, Temporary: true}
	}
	id, answer := l.expect()
	if id == 0 {
		return out, &backend.Fault{Err: backend.ErrSessionClosed, Remedy: "open another client"}
	}
	l.send(encode(frame{ID: id, Op: op}, in))
	select {
	case f := <-answer:
		if f.Fault != nil {
			return out, f.Fault.err()
		}
		return out, json.Unmarshal(f.Body, &out)
	case <-ctx.Done():
		l.forget(id)
		return out, &backend.Fault{Err: ctx.Err(), MayHaveRun: true, Temporary: true}
	}
}
