package playground

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
)

// LockName is the lock of the page.
const LockName = "account:acme"

// Service is a program that locks, reads the ledger, and writes it. Its methods may be called concurrently.
type Service struct {
	Config
	client *mortise.Client
	locks  mortise.Locker

	mu      sync.Mutex
	lease   *mortise.Lease     // the latest lease; nil before the first
	cancel  context.CancelFunc // ends the latest Lock, if it still waits
	balance int                // as last read or written
	written bool               // the service has written under lease
	resumed chan struct{}
}

// Config is what a service needs.
type Config struct {
	Name     string
	Store    backend.Backend
	Ledger   *Link
	Watchdog time.Duration
	Amount   int         // of a withdrawal
	Tell     func(Event) // is called for each event, in order; must not wait
	Stop     func()      // stops the program as soon as nothing of it is ready to run
}

// Event is something that happened to a service.
type Event struct {
	What      string `json:"what"`
	Remaining int64  `json:"remaining,omitempty"` // of the lease, in milliseconds
	Token     int64  `json:"token,omitempty"`
	Balance   int    `json:"balance,omitempty"`
	Err       string `json:"err,omitempty"`
}

// Start makes a service.
func Start(c Config) (*Service, error) {
	s := &Service{Config: c, resumed: make(chan struct{}, 1)}
	var err error
	s.client, err = mortise.New(c.Store, mortise.WithID(c.Name), mortise.WithWatchdogTimeout(c.Watchdog),
		mortise.WithObserver(mortise.Observer{
			Waiting: func(mortise.Event) { c.Tell(Event{What: "waiting"}) },
			Renewed: func(e mortise.Event) {
				c.Tell(Event{What: "renewed", Remaining: e.Remaining.Milliseconds()})
			},
			Lost: func(e mortise.Event) { c.Tell(Event{What: "lost", Err: e.Err.Error()}) },
		}))
	if err != nil {
		return nil, err
	}
	s.locks = s.client.With(mortise.Fenced())
	return s, nil
}

// Close shuts the service down at once.
func (s *Service) Close() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	s.client.Shutdown(ended)
}

// Do carries out a button, and returns when that is done.
func (s *Service) Do(button string) {
	var err error
	switch button {
	case "lock":
		err = s.lock()
	case "unlock":
		err = s.unlock()
	case "leave":
		s.leave()
	case "write":
		err = s.write()
	case "pause":
		err = s.pause()
	case "resume":
		s.resumed <- struct{}{}
	}
	if err != nil {
		s.Tell(Event{What: "failed", Err: err.Error()})
	}
}

// lock acquires the lock, without a bound on the wait, and reads the balance.
func (s *Service) lock() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.mu.Lock()
	s.cancel = cancel
	s.mu.Unlock()
	lease, err := s.locks.Lock(ctx, LockName)
	if errors.Is(err, context.Canceled) {
		s.Tell(Event{What: "left"})
		return nil
	}
	if err != nil {
		return err
	}
	token := lease.Token()
	s.Tell(Event{What: "acquired", Token: token, Remaining: s.Watchdog.Milliseconds()})
	balance, err := account{s.Ledger}.read(lease.Context())
	s.mu.Lock()
	s.lease, s.balance, s.written = lease, balance, false
	s.mu.Unlock()
	if err == nil {
		s.Tell(Event{What: "read", Balance: balance})
	}
	return err
}

// leave cancels the Lock that waits.
func (s *Service) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel()
	}
}

func (s *Service) unlock() error {
	s.mu.Lock()
	lease := s.lease
	s.mu.Unlock()
	if err := lease.Unlock(context.Background()); err != nil {
		return err
	}
	s.Tell(Event{What: "released"})
	return nil
}

// write checks the lease, and writes.
func (s *Service) write() error {
	ready, err := s.checked()
	if err == nil {
		err = s.send(ready)
	}
	return err
}

// checked checks the lease, and returns the write that the service may then send.
func (s *Service) checked() (Write, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.lease.Err(); err != nil {
		return Write{}, err
	}
	token := s.lease.Token()
	return Write{s.balance - s.Amount, token}, nil
}

// send writes. It does not check the lease again: a program can be stopped between any check and the write.
func (s *Service) send(w Write) error {
	accepted, err := account{s.Ledger}.write(context.Background(), w)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.balance, s.written = w.Balance, true
	s.mu.Unlock()
	if !accepted {
		s.Tell(Event{What: "refused", Token: w.Token})
	}
	return nil
}

// pause stops the program until Do("resume"). A holder that has not written yet is stopped between its check of the
// lease and its write: where a collector, a hypervisor or a slow disk may stop any program.
func (s *Service) pause() error {
	s.mu.Lock()
	open := s.lease != nil && !s.written
	s.mu.Unlock()
	var ready Write
	var err error
	if open {
		ready, err = s.checked()
		open = err == nil
	}
	s.Tell(Event{What: "paused", Token: ready.Token})
	s.Stop()
	<-s.resumed
	s.Tell(Event{What: "resumed"})
	if !open {
		return nil
	}
	return s.send(ready)
}
