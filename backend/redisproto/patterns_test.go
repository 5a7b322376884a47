package redisproto_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/scripts"
)

// overPatterns runs a test beside a client that subscribes to a pattern, as tools do that show messages: PUBLISH counts
// it on each channel.
func overPatterns(t *testing.T, f func(t *testing.T, srv *redistest.Server, s anykind.Store, e *ears)) {
	over(t, func(t *testing.T, srv *redistest.Server, s anykind.Store, e *ears) {
		rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
		sub := rdb.PSubscribe(t.Context(), "redisson_*")
		t.Cleanup(func() { sub.Close(); rdb.Close() })
		check.NoError(t, check.Err(sub.Receive(t.Context())))
		f(t, srv, s, e)
	})
}

func TestBesideAPatternDeadEntriesArePassedOver(t *testing.T) {
	overPatterns(t, func(t *testing.T, srv *redistest.Server, s anykind.Store, e *ears) {
		for _, kind := range []backend.Kind{backend.KindLock, backend.KindWrite, backend.KindCountingSemaphore,
			backend.KindSemaphore} {
			s.Subscribe(backend.Topic{Kind: kind, Name: "n"})
		}
		e.await(t, "watching n", 4)
		w := &waiter{Store: s, ears: e, name: "n", owner: "w:1"}
		check.FatalIf(t, !tries(t, s, "n", "h:1", false).Granted, "not granted")
		do(t, srv, "ZADD", queueOf("n"), "1", "pdead:1", "2", "pdead:2")
		w.enters(t, 3)
		do(t, srv, "ZADD", queueOf("n"), "4", "pdead:4")
		release(t, s, "n", "h:1")
		if record := hash(t, srv, "n"); !strings.HasSuffix(record, ":3=-") && record != w.owner+"=1" {
			t.Errorf("a lock: the record is %s", record)
		}
		check.Equal(t, "a lock: %d entries are left", do(t, srv, "ZCARD", queueOf("n")).(int64), 0)
		for kind, k := range sharedKinds {
			do(t, srv, "FLUSHALL")
			k.set(t, s)
			k.take(t, s, 0, backend.Enrolment{})
			k.take(t, s, 1, backend.Enrolment{Entry: 3})
			do(t, srv, "ZADD", wakeQueue, "1", "pdead:1", "2", "pdead:2")
			k.free(t, s, 0)
			entries := do(t, srv, "ZRANGE", wakeQueue, "0", "0", "WITHSCORES").([]any)
			check.ErrorIf(t, len(entries) != 2 || !strings.HasSuffix(entries[0].(string), ":3"),
				"%s: %v; want the live entry", kind, entries)
		}
	})
}

func TestBesideAPatternDeadPlacesOfAFairLockArePassedOver(t *testing.T) {
	overPatterns(t, func(t *testing.T, srv *redistest.Server, s anykind.Store, e *ears) {
		for what, frees := range map[string]func() anykind.AcquireReply{
			"a release": func() anykind.AcquireReply {
				free(t, s, "n", "go:1")
				return ask(t, s, "n", "live:1", fairWait)
			},
			"a request": func() anykind.AcquireReply {
				do(t, srv, "DEL", "n")
				return ask(t, s, "n", "live:1", fairWait)
			},
		} {
			do(t, srv, "FLUSHALL")
			for _, owner := range []string{"go:1", "dead:1", "dead:2", "live:1"} {
				ask(t, s, "n", owner, fairWait)
			}
			r := frees()
			check.ErrorIf(t, r.Granted || r.AskAfter > backend.Absence, "%s: %+v; want it refused, for a second", what, r)
			for _, owner := range []string{"dead:1", "dead:2"} {
				check.ErrorIf(t, place(t, srv, owner) > backend.Absence, "%s: %s has %v", what, owner, place(t, srv, owner))
			}
		}
	})
}

// A script for several releases a lock that no client waits for, and leaves one that a client waits for to the script
// for one.
func TestBesideAPatternManyReleasesAreOneScript(t *testing.T) {
	overPatterns(t, func(t *testing.T, srv *redistest.Server, s anykind.Store, e *ears) {
		s.Subscribe(topic("heard"))
		e.await(t, "watching heard", 1)
		for name, want := range map[string]string{"unheard": "[1]", "heard": "[-2]"} {
			acquire(t, s, name, "o:1", time.Minute)
			got := fmt.Sprint(do(t, srv, "EVAL", scripts.JointSource, "2", name, "redisson_lock__channel:{"+name+"}", "publish",
				"o:1", "0"))
			check.Equal(t, name+": %s", got, want)
		}
	})
}
