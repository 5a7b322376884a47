//go:build linux

package main

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// ask sends a request, and returns the reply's status and body.
func ask(t *testing.T, r *http.Request) (int, string) {
	t.Helper()
	res := check.Value(http.DefaultTransport.RoundTrip(r)).In(t)
	defer res.Body.Close()
	return res.StatusCode, string(check.Value(io.ReadAll(res.Body)).In(t))
}

// freeing is a request to a console to free the lock a.
func freeing(t *testing.T, address, owner string) *http.Request {
	form := strings.NewReader(url.Values{"name": {"a"}, "owner": {owner}}.Encode())
	r := check.Value(http.NewRequestWithContext(t.Context(), http.MethodPost, address+"unlock", form)).In(t)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

func TestConsoleShowsALockAndFreesItOnlyIfStartedSo(t *testing.T) {
	server := redistest.Start(t)
	locks := client(t, server)
	lease := check.Value(locks.Lock(t.Context(), "a")).In(t)
	defer lease.Unlock(context.Background()) // Close waits for leases
	owner := check.Value(locks.Inspect(t.Context(), "a")).In(t).Owner
	for _, c := range []struct {
		args   []string
		status int
		held   bool
	}{
		{nil, http.StatusNotFound, true},
		{[]string{"--unlock"}, http.StatusSeeOther, false},
	} {
		p := begin(t, at(server), append([]string{"console", "--listen", "127.0.0.1:0"}, c.args...)...)
		address := p.line()
		r := check.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, address+"lock?name=a", nil)).In(t)
		_, page := ask(t, r)
		check.ErrorIf(t, !strings.Contains(page, owner), "the page does not have the owner: %s", page)
		check.ErrorIf(t, !strings.Contains(page, "store redis://"+server.Addr()), "not which store: %s", page)
		r.Host = "evil.test"
		status, _ := ask(t, r)
		check.Equal(t, "by another name: %d", status, http.StatusForbidden)
		evil := freeing(t, address, owner)
		evil.Header.Set("Origin", "http://evil.test")
		status, _ = ask(t, evil)
		check.ErrorIf(t, status != http.StatusForbidden && c.status != http.StatusNotFound, "another site: %d", status)
		status, _ = ask(t, freeing(t, address, owner))
		check.Equal(t, "unlock: %d", status, c.status)
		check.Equal(t, "held: %t", check.Value(locks.Inspect(t.Context(), "a")).In(t).Held, c.held)
		check.Done(t, p.Process.Signal(unix.SIGTERM))
		check.Equal(t, "exit code %d", p.code(), 0)
		audited := strings.Contains(p.said.String(), "freed=true") && strings.Contains(p.said.String(), owner)
		check.ErrorIf(t, audited == c.held, "the log: %s", &p.said)
	}
}

func TestConsoleIsForThisMachineUnlessPermitted(t *testing.T) {
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		p := begin(t, "memory:", "console", "--listen", address)
		check.Equal(t, "exit code %d", p.code(), codeUsage)
	}
	for _, flag := range []string{"--read-only", "--anywhere"} {
		p := begin(t, "memory:", "console", "--unlock", "--listen", "127.0.0.1:0", flag)
		check.Equal(t, "exit code %d", p.code(), codeUsage)
	}
}
