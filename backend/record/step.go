package record

import (
	"time"

	"github.com/mortise-go/mortise/backend"
)

// Time is a time of the store's clock: what has passed since a moment that the store has chosen, and which is before
// all steps.
type Time = time.Duration

// Session identifies a client's session with the store. No session is 0.
type Session uint64

// World is what a store knows besides the state of a name.
type World interface {
	// Hears reports whether a session that enrols watches a topic: it hears of its entries.
	Hears(Session, backend.Topic) bool
	// Watched reports whether a session watches a topic.
	Watched(backend.Topic) bool
	// Strangers reports whether another session watches a topic, and cannot enrol.
	Strangers(t backend.Topic, but Session) bool
	// Draw returns a new fencing token of a name, larger than all earlier ones. Drawn returns the last one, or a larger
	// number if it was forgotten.
	Draw(name string) int64
	Drawn(name string) int64
}

// Step is a request's step: what it meets besides the state, and the notices that it leaves.
type Step struct {
	World
	Name string
	Now  Time
	// By is the session that sent the request; 0 if there is no request, only time that has passed.
	By Session
	// Wall is the store's time in ms since the Unix epoch, for ticks.
	Wall int64
	// Day is Now in ms since the Unix epoch, for what is told of times, if that is not Wall; otherwise 0.
	Day int64
	// NoGrants: nothing is granted. Other data than a lock has the name, or the store is out of service (Down).
	NoGrants, Down bool
	// memory is scratch space for counts.
	memory memory
	// Notices are for sessions, in the order in which they are to be told.
	Notices []Notice
}

// What is a notice about.
type What uint8

// Each is a method of [backend.Handler] or [backend.QueueHandler].
const (
	Released What = iota
	Changed
	Granted
	Reserved
	First
	Wanted
)

// Notice is a message to sessions.
type Notice struct {
	What  What
	Topic backend.Topic
	// To are the sessions to be told. All: also all others that watch the topic. Strangers: those that watch the topic,
	// and cannot enrol.
	To        []Session
	All       bool
	Strangers bool
	// Entry is for Reserved, First and Wanted, and After for First.
	Entry uint64
	After time.Duration
	// Owner, Token and Lease are for Granted. The lease began with the step.
	Owner string
	Token int64
	Lease time.Duration
}

func (s *Step) tell(n Notice) { s.Notices = append(s.Notices, n) }

// announce tells all sessions that watch a topic of a release.
func (s *Step) announce(t backend.Topic) { s.tell(Notice{What: Released, Topic: t, All: true}) }

// topic returns the topic of a kind.
func (s *Step) topic(k backend.Kind) backend.Topic { return backend.Topic{Kind: k, Name: s.Name} }

// under is the topic of those that wait to enter under an owner.
func (s *Step) under(owner string) backend.Topic {
	return backend.Topic{Kind: backend.KindDelegated, Name: s.Name, Owner: owner}
}

// Left returns the time until end, rounded up to whole milliseconds, at least one.
func (s *Step) Left(end Time) time.Duration {
	return max((end - s.Now + time.Millisecond - 1).Truncate(time.Millisecond), time.Millisecond)
}

// tellEntry tells the session of an entry, if it hears.
func (s *Step) tellEntry(x Session, n Notice) {
	if s.Hears(x, n.Topic) {
		n.To = []Session{x}
		s.tell(n)
	}
}

// renewed returns the end of a lease after a renewal, and over: what is left of a lease that lasts longer than was
// asked for, zero for any other.
func (s *Step) renewed(end Time, q backend.RenewRequest) (renewed Time, over time.Duration) {
	until := s.Now + q.Lease
	switch {
	case q.Lease == 0:
		return end, 0
	case q.Exact || until >= end:
		return until, 0
	}
	return end, end - s.Now
}
