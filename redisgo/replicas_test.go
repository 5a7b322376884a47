//go:build unix

package redisgo_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/redisgo"
)

type nobody struct{}

func (nobody) Watching(backend.Topic) {}
func (nobody) Released(backend.Topic) {}
func (nobody) Changed(backend.Topic)  {}
func (nobody) ChangedAll()            {}

// An acquisition whose reply was lost is sent again, perhaps over another connection, about whose writes
// WAIT is. So the second time is a write too, though it changes nothing.
func TestTheSameAcquisitionAgainIsAWrite(t *testing.T) {
	check.Long(t)
	srv := redistest.Start(t, redistest.WithConfig("repl-ping-replica-period 3600"))
	redistest.StartReplica(t, srv)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	s := check.Value(redisgo.New(rdb).Open(nobody{})).In(t)
	defer s.Close()
	x := anykind.Store{Store: s}
	written := func() (offset int64) {
		_, after, _ := strings.Cut(fmt.Sprint(srv.Must("INFO", "replication")), "master_repl_offset:")
		check.NoError(t, check.Err(fmt.Sscan(after, &offset)))
		return offset
	}
	for what, r := range map[string]anykind.AcquireRequest{
		"plain":           {},
		"fenced":          {Fenced: true},
		"waits":           {Enrols: true},
		"waits, fenced":   {Enrols: true, Fenced: true},
		"fair":            {Kind: backend.KindFair},
		"fair and fenced": {Kind: backend.KindFair, Fenced: true},
		"read":            {Kind: backend.KindRead},
		"read under read": {Kind: backend.KindRead, Under: "a:1", UnderKind: backend.KindRead},
		"write":           {Kind: backend.KindWrite},
	} {
		r.Name, r.Owner, r.Lease = what, "a:2", time.Hour
		if r.Under != "" {
			outer := anykind.AcquireRequest{Kind: r.UnderKind, Name: what, Owner: r.Under, Lease: time.Hour}
			reply, err := x.Acquire(t.Context(), outer)
			check.FatalIf(t, err != nil || !reply.Granted, "%s: %+v, %v", what, reply, err)
		}
		for n := range 3 {
			before := written()
			reply, err := x.Acquire(t.Context(), r)
			check.FatalIf(t, err != nil || !reply.Granted, "%s, %d: %+v, %v", what, n, reply, err)
			check.ErrorIf(t, written() == before, "%s, %d: nothing was written", what, n)
		}
	}
}

// unknown is a client of a type that redisgo does not know.
type unknown struct{ redis.UniversalClient }

func TestAClientOfAnotherTypeIsRefusedReplicas(t *testing.T) {
	srv := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	locks, err := mortise.New(redisgo.New(unknown{rdb}))
	check.NoError(t, err)
	defer locks.Close()
	_, err = locks.Lock(context.Background(), "n", mortise.WithReplicas(1, time.Second))
	check.ErrorIf(t, !errors.Is(err, mortise.ErrInvalid), "%v, want ErrInvalid", err)
	lease := check.Value(locks.Lock(context.Background(), "n")).In(t)
	check.Done(t, lease.Unlock(context.Background()))
}

// Renewals of names in several slots would fail, and all leases would be lost.
func TestAClientOfASingleServerGetsNoLocksOnACluster(t *testing.T) {
	check.Long(t)
	srv := redistest.Start(t, redistest.WithCluster())
	single := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer single.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr()}})
	defer cluster.Close()
	for what, rdb := range map[string]redis.UniversalClient{"Client": single, "wrapped ClusterClient": unknown{cluster}} {
		locks := check.Value(mortise.New(redisgo.New(rdb))).In(t)
		defer locks.Close()
		_, err := locks.TryLock(t.Context(), "n")
		check.ErrorIf(t, !errors.Is(err, mortise.ErrUnavailable) ||
			!strings.Contains(err.Error(), "give mortise a cluster client"), "%s: %v", what, err)
	}
}
