//go:build unix

package redisproto_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// tagged are names of one slot of a cluster.
var tagged = []string{"{t}:a", "{t}:b", "{t}:c"}

func multi(t *testing.T, b backend.Backend) (multiSession, *ears) {
	t.Helper()
	s, h := session(t, b)
	return multiSession{s.Store, s.Capabilities().Batch}, h
}

type multiSession struct {
	backend.Store
	backend.BatchStore
}

func asks(owner string, names ...string) []backend.AcquireRequest {
	var in []backend.AcquireRequest
	for _, n := range names {
		in = append(in, backend.AcquireRequest{Name: n, Owner: owner, Lease: time.Minute})
	}
	return in
}

func TestTheRecordsOfLocksTakenTogetherAreRedissons(t *testing.T) {
	check.Long(t)
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, h := multi(t, b)
		in := asks("c:1", "a", "{t}:b", "c")
		in[1].Fenced = true
		if err := s.Ping(t.Context()); err != nil { // what the server is, is known then
			t.Fatal(err)
		}
		out, err := s.AcquireAll(t.Context(), in)
		check.FatalIf(t, err != nil || !out[0].Granted || !out[1].Granted || !out[2].Granted, "%+v, %v", out, err)
		for i, r := range in {
			got := fmt.Sprint(do(t, srv, "HGETALL", r.Name))
			check.ErrorIf(t, got != "[c:1 1]", "%s is %s", r.Name, got)
			left := do(t, srv, "PTTL", r.Name).(int64)
			check.ErrorIf(t, left <= 30_000 || left > 60_000, "%s has %d ms left", r.Name, left)
			if i == 1 && fmt.Sprint(do(t, srv, "GET", "redisson_lock_token:{t}:b")) != fmt.Sprint(out[1].Token) {
				t.Errorf("the token is %d", out[1].Token)
			}
			s.Subscribe(topic(r.Name))
			h.await(t, "watching "+r.Name, 1)
		}
		keys := do(t, srv, "DBSIZE")
		check.ErrorIf(t, keys != int64(4), "%v keys, want three locks and a token", keys)
		// As Redisson's own script sees it: held by another, for so long.
		check.Equal[any](t, "the field: %v", do(t, srv, "HEXISTS", "a", "c:1"), int64(1))
		release := make([]backend.ReleaseResult, 3)
		s.ReleaseAll(t.Context(), []backend.ReleaseRequest{{Name: "a", Owner: "c:1"}, {Name: "{t}:b", Owner: "c:1"},
			{Name: "c", Owner: "c:1"}}, release)
		for i, r := range in {
			check.ErrorIf(t, !release[i].Held || release[i].Err != nil, "%+v", release[i])
			h.await(t, "released "+r.Name, 1)
		}
		keys = do(t, srv, "DBSIZE")
		check.ErrorIf(t, keys != int64(1), "%v keys, want the token", keys)
	})
}

// A read lock that Redisson granted over a plain lock, as it does, outlives its release.
func TestAReleaseOfAllLeavesForeignFieldsAlone(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, _ := multi(t, b)
		check.NoError(t, check.Err(s.AcquireAll(t.Context(), asks("c:1", tagged...))))
		do(t, srv, "HSET", tagged[0], "mode", "read", "uuid:1", "1")
		out := make([]backend.ReleaseResult, 1)
		s.ReleaseAll(t.Context(), []backend.ReleaseRequest{{Name: tagged[0], Owner: "c:1"}}, out)
		n := do(t, srv, "HLEN", tagged[0])
		check.ErrorIf(t, !out[0].Held || n != int64(2), "%+v, %v fields are left", out[0], n)
	})
}

func TestAFlushOfScriptsIsNotNoticedByLocksTakenTogether(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, _ := multi(t, b)
		for range 2 {
			do(t, srv, "SCRIPT", "FLUSH")
			if out, err := s.AcquireAll(t.Context(), asks("c:1", tagged...)); err != nil || !out[0].Granted {
				t.Fatalf("%+v, %v", out, err)
			}
			do(t, srv, "SCRIPT", "FLUSH")
			out := make([]backend.ReleaseResult, 1)
			if s.ReleaseAll(t.Context(), []backend.ReleaseRequest{{Name: tagged[0], Owner: "c:1"}}, out); !out[0].Held {
				t.Fatalf("%+v", out)
			}
			s.ReleaseAll(t.Context(), []backend.ReleaseRequest{{Name: tagged[1], Owner: "c:1"}}, out)
			s.ReleaseAll(t.Context(), []backend.ReleaseRequest{{Name: tagged[2], Owner: "c:1"}}, out)
		}
	})
}

// What a script's pcall caught is told as what it is.
func TestAPermissionThatIsMissingIsNotAWrongKind(t *testing.T) {
	for name, adapter := range adapters {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t, redistest.WithACL("u on >p ~* &* +@all -hexists"))
			do(t, srv, "HSET", tagged[2], "uuid:1", "1")
			s, _ := multi(t, adapter(t, srv.Addr(), login{"u", "p"}))
			_, err := s.AcquireAll(t.Context(), asks("c:1", tagged...))
			check.ErrorIf(t, err == nil || errors.Is(err, backend.ErrWrongKind) ||
				!strings.Contains(backend.FaultOf(err).Remedy, "permission"), "%v: %+v", err, backend.FaultOf(err))
			n := do(t, srv, "DBSIZE")
			check.ErrorIf(t, n != int64(1) || backend.FaultOf(err).MayHaveRun, "%v keys, %+v", n, backend.FaultOf(err))
			out := make([]backend.ReleaseResult, 3)
			s.ReleaseAll(t.Context(), []backend.ReleaseRequest{{Name: tagged[0], Owner: "c:1"},
				{Name: tagged[2], Owner: "c:1"}, {Name: tagged[1], Owner: "c:1"}}, out)
			for _, r := range out {
				check.ErrorIf(t, r.Err == nil || errors.Is(r.Err, backend.ErrWrongKind), "%+v", r)
			}
		})
	}
}

func TestLocksOfSeveralSlotsAreNotTakenTogether(t *testing.T) {
	check.Long(t)
	overClusters(t, func(t *testing.T, _ *redistest.Server, b backend.Backend) {
		s, _ := multi(t, b)
		names := []string{"{x}:1", "{y}:1", "{x}:2", "{z}:1", "{y}:2"}
		for range 2 {
			groups := s.Groups(names)
			check.ErrorIf(t, len(groups) != 3 || !slices.Equal(groups[0], []int{0, 2}) ||
				!slices.Equal(groups[1], []int{1, 4}) || !slices.Equal(groups[2], []int{3}), "%v", groups)
			_, err := s.AcquireAll(t.Context(), asks("c:1", names...))
			check.ErrorIf(t, err == nil || backend.FaultOf(err).MayHaveRun, "of three slots: %v", err)
			for _, g := range groups {
				var of []string
				for _, i := range g {
					of = append(of, names[i])
				}
				out, err := s.AcquireAll(context.Background(), asks("c:1", of...))
				check.ErrorIf(t, err != nil || !out[0].Granted, "%v: %+v, %v", of, out, err)
			}
			in := make([]backend.ReleaseRequest, len(names))
			out := make([]backend.ReleaseResult, len(names))
			for i, n := range names {
				in[i] = backend.ReleaseRequest{Name: n, Owner: "c:1"}
			}
			s.ReleaseAll(context.Background(), in, out)
			for i, r := range out {
				if !r.Held || r.Err != nil {
					t.Errorf("%s: %+v", names[i], r)
				}
			}
		}
	})
}
