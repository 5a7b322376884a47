package miniredis

import (
	"bytes"
	"context"
	"errors"
	"net"
	"runtime/pprof"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/backendtest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/test/internal/harness"
)

func TestMain(m *testing.M) {
	redis.SetLogger(harness.Silent{}) // it tells each failed dial
	m.Run()
}

// With ClockTTL the keys expire by the bubble's clock.
func TestConformance(t *testing.T) {
	backendtest.RunSomeInBubbles(t, func(t *testing.T) backendtest.Store {
		s := &store{t: t, server: miniredis.NewMiniRedis()}
		s.server.ClockTTL(true)
		t.Cleanup(s.server.Close)
		return s
	}, func(name string) bool { return lacks[name] == "" })
}

const (
	noRunID    = "INFO has no section server, so a store's age is not known: no Quorum with a rejoin delay"
	noReplicas = "WAIT answers at once, without replicas"
	slow       = "thousands of scripts or subscriptions take minutes"
)

// lacks has the tests that miniredis does not pass, and why. No other rule is left out: with ClockTTL its clock does
// what the suite needs. Without ClockTTL keys stay until FastForward, so no lease ends in the store.
var lacks = map[string]string{
	"Port_AStoreThatWasEmptiedIsYoungInEachScope":             noRunID,
	"Port_AStoreThatWasEmptiedRefusesUntilItIsOldEnough":      noRunID,
	"Port_ReplicasThatHaveAGrantAreCounted":                   noReplicas,
	"Rule09_AnAbandonedLockThatWaitsForReplicasLeavesNothing": noReplicas,
	"Port_RandomCallersAndCalleesAreAStack":                   "fields of a hash are sorted, not in order of arrival",
	"Port_AThousandTopicsAreWatchedAtOnce":                    slow,
	"Port_WhatAFaultSaysHasNotRunHasNot":                      slow,
	"Rule12_WaitersOfManyNamesAllWakeAfterAnInterruption":     slow,
	"Rule15_GoroutinesAndConnectionsDoNotGrowWithWaiters":     slow,
}

// store is a server, with connections in the test's bubble.
type store struct {
	t      *testing.T
	server *miniredis.Miniredis

	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

func (s *store) dial(context.Context, string, string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errors.New("connection refused")
	}
	var c buffered
	var err error
	dialled := make(chan struct{})
	go func() {
		defer close(dialled)
		// The suite counts a test's goroutines by their labels. Those of a connection are the network's and the server's.
		pprof.SetGoroutineLabels(context.Background())
		var pipe net.Conn
		if pipe, err = s.server.Dial(); err == nil {
			c = buffer(pipe)
		}
	}()
	<-dialled
	if err != nil {
		return nil, err
	}
	s.conns = append(s.conns, c)
	return c, nil
}

// buffered is a connection whose Write does not wait for the other side, as on a network. On the pipe itself a client
// that writes to its subscription and a server that sends it a message wait for each other for ever.
type buffered struct {
	net.Conn
	out    chan []byte
	closed context.Context
	close  context.CancelFunc
}

func buffer(c net.Conn) buffered {
	b := buffered{Conn: c, out: make(chan []byte, 1000)}
	b.closed, b.close = context.WithCancel(context.Background())
	go b.write()
	return b
}

func (b buffered) write() {
	defer b.Close()
	for {
		select {
		case out := <-b.out:
			if _, err := b.Conn.Write(out); err != nil {
				return
			}
		case <-b.closed.Done():
			return
		}
	}
}

func (b buffered) Write(out []byte) (int, error) {
	select {
	case b.out <- bytes.Clone(out):
		return len(out), nil
	case <-b.closed.Done():
		return 0, net.ErrClosed
	}
}

func (b buffered) Close() error {
	b.close()
	return b.Conn.Close()
}

func (s *store) Backend() backend.Backend {
	client := redis.NewClient(&redis.Options{Addr: "192.0.2.7:6379", Dialer: s.dial})
	s.t.Cleanup(func() { client.Close() })
	return redisgo.New(client)
}

func (s *store) Delete(name string) { s.server.Del(name) }
func (s *store) Flush()             { s.server.FlushAll() }

func (s *store) Occupy(name string) {
	s.server.Del(name)
	check.NoError(s.t, s.server.Set(name, "no lock"))
}

func (s *store) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
	s.conns = nil
}

func (s *store) Down() {
	s.mu.Lock()
	s.down = true
	s.mu.Unlock()
	s.Cut()
}

func (s *store) Up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
}

func (s *store) Connections() int { return s.server.CurrentConnectionCount() }
