//go:build unix

package redisproto_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/quorum"
)

// Another user of the server, which may write the record of its age that clients without a scope
// have, neither keeps a scope's Quorum out nor makes an emptied server look old to it.
func TestAScopesAgeIsNotAnotherUsersToSay(t *testing.T) {
	check.Long(t)
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, _ := session(t, b)
		ask := func(age time.Duration) anykind.AcquireReply {
			t.Helper()
			r, err := s.Acquire(t.Context(), anykind.AcquireRequest{Name: "orders:1", Owner: "a:1",
				Lease: time.Minute, Age: &backend.Age{Least: age, Scope: "orders"}})
			check.NoError(t, err)
			return r
		}
		const user = "bob"
		do(t, srv, "ACL", "SETUSER", user, "on", ">pw", "~bob:*", "~mortise:1:since", "~mortise:1:since:bob", "+@all")
		run := ""
		for line := range strings.Lines(fmt.Sprint(do(t, srv, "INFO", "server"))) {
			if id, ok := strings.CutPrefix(line, "run_id:"); ok {
				run = strings.TrimSpace(id)
			}
		}
		says := func(since time.Time) {
			t.Helper()
			for _, key := range []string{"mortise:1:since", "mortise:1:since:bob"} {
				do(t, srv, "ACL", "DRYRUN", user, "SET", key, "x")
				do(t, srv, "SET", key, fmt.Sprintf("%d:%s", since.UnixMilli(), run))
			}
		}
		got := fmt.Sprint(do(t, srv, "ACL", "DRYRUN", user, "SET", "mortise:1:since:orders", "x"))
		check.ErrorIf(t, got == "OK", "the user may write the scope's record")

		says(time.Now().Add(-time.Hour))
		r := ask(time.Minute)
		check.ErrorIf(t, !r.Young, "the server is new, whatever the other user says: %+v", r)
		// It is old enough in time, though the other user says each time that it began just now.
		eventually(t, "it has a vote", func() bool {
			says(time.Now())
			return ask(300 * time.Millisecond).Granted
		})
		pttl(t, srv, "mortise:1:since:orders", 365*24*time.Hour, 2*366*24*time.Hour)
	})
}

func TestQuorumAsksForTheAgeInTheScopeOfItsClients(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		var clients []*mortise.Client
		for range 3 {
			clients = append(clients, client(t, b, quorum.WithRejoinScope("orders")))
		}
		quorum, err := quorum.New(clients...)
		check.NoError(t, err)
		_, err = quorum.TryLock(t.Context(), "n")
		check.FatalIf(t, !errors.Is(err, mortise.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "have no vote"),
			"%v, want the new server to have no vote", err)
		equal(t, "the keys", keys(t, srv), []string{"mortise:1:since:orders"})
	})
}
