package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/etcd"
	"github.com/mortise-go/mortise/internal/redistest/beside"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// ways are those of the table: etcd's own Mutex, and mortise.
var ways = []beside.Way{
	{Name: "etcd, concurrency.Mutex", Open: openMutex},
	{Name: "mortise, etcd", Open: beside.Mortise(backendAt)},
}

// backendAt returns the backend of an address, a space and a prefix.
func backendAt(at string) backend.Backend {
	addr, prefix, _ := strings.Cut(at, " ")
	return etcd.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()}, prefix)
}

// openMutex has a session for each lock that is held or waited for, which are used again: two Mutexes of one session
// and one name do not exclude each other.
func openMutex(at string) (beside.Lock, error) {
	addr, prefix, _ := strings.Cut(at, " ")
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	free := make(chan *concurrency.Session, 1024)
	return func(ctx context.Context, name string) (func() error, error) {
		var s *concurrency.Session
		select {
		case s = <-free:
		default:
			if s, err = concurrency.NewSession(c, concurrency.WithTTL(30)); err != nil {
				return nil, err
			}
		}
		m := concurrency.NewMutex(s, prefix+name)
		if err := m.Lock(ctx); err != nil {
			return nil, err
		}
		return func() error {
			defer func() { free <- s }()
			return m.Unlock(context.Background())
		}, nil
	}, nil
}

// BenchmarkBeside is a part of `make bench-stores`.
func BenchmarkBeside(b *testing.B) {
	one := newMembers(b.TempDir())[0]
	one.disk = true
	check.NoError(b, one.start())
	defer one.stop()
	check.NoError(b, one.ready())
	n := 0
	beside.Table(b, func() string { n++; return fmt.Sprintf("%s bench%d/", one.addr, n) }, ways...)
}
