package etcd_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/backendtest"
	"github.com/mortise-go/mortise/backend/cas"
	"github.com/mortise-go/mortise/backend/cas/castest"
	"github.com/mortise-go/mortise/backend/etcd"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

func TestConformance(t *testing.T) {
	check.Long(t)
	t.Parallel()
	backendtest.Run(t, func(t *testing.T) backendtest.Store { return newStore(t) })
}

func TestDriver(t *testing.T) {
	check.Long(t)
	t.Parallel()
	castest.Run(t, func(t *testing.T) castest.Store { return newStore(t) })
}

// store is a prefix of the server behind a proxy, as the suites want it.
type store struct {
	t      testing.TB
	prefix string
	past   *clientv3.Client // not through the proxy
	proxy  *redistest.Gate
}

var prefixes atomic.Int64

func newStore(t testing.TB) *store {
	t.Helper()
	return &store{
		t: t, prefix: fmt.Sprintf("test%d/", prefixes.Add(1)), past: direct(t, server),
		proxy: redistest.NewGate(t, server),
	}
}

func (s *store) config() clientv3.Config { return clientv3.Config{Endpoints: []string{s.proxy.Addr()}} }

func (s *store) Backend() backend.Backend { return etcd.New(s.config(), s.prefix) }

func (s *store) Driver() cas.Driver {
	d, err := etcd.NewDriver(s.config(), s.prefix)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// past the proxy

func (s *store) put(key, value string) {
	s.t.Helper()
	if _, err := s.past.Put(background, s.prefix+key, value); err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) delete(key string, opts ...clientv3.OpOption) {
	s.t.Helper()
	if _, err := s.past.Delete(background, s.prefix+key, opts...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) Delete(name string) { s.delete("lock/" + name) }
func (s *store) Flush()             { s.delete("lock/", clientv3.WithPrefix()) }
func (s *store) Cut()               { _ = s.proxy.Cut() }
func (s *store) Down()              { s.proxy.Down() }
func (s *store) Up()                { s.proxy.Up() }
func (s *store) Connections() int   { return s.proxy.Connections() }
func (s *store) OneValue()          {}

// EndSession ends the lease of what a session listens with.
func (s *store) EndSession(session string) {
	s.t.Helper()
	id := etcd.LeaseOf(s.Driver(), session)
	if _, err := s.past.Revoke(background, clientv3.LeaseID(id)); err != nil {
		s.t.Fatal(err)
	}
}

// Occupy puts data of another program under a name's key. A proclamation is a part of its lock's value.
func (s *store) Occupy(name string) {
	if lock, is := strings.CutPrefix(name, "mortise:1:proclaim:{"); is {
		name = strings.TrimSuffix(lock, "}")
	}
	s.put("lock/"+name, "data of another program")
}
