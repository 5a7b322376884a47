//go:build linux

package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/pg"
)

// On each store a command runs under a lock, is seen by other processes, refuses a second one, and ends when an
// operator frees its lock.
func TestTheCommandOnEachStore(t *testing.T) {
	check.Long(t)
	runtime.LockOSThread() // the servers end with the thread that started them
	database := check.Value(pg.Start("fsync=off")).In(t)
	t.Cleanup(database.Stop)
	server := redistest.Start(t).Addr()
	for _, store := range []string{
		"redis://" + server, "rueidis://" + server, "valkey://" + server, database.URL("postgres"),
		"sqlite:" + t.TempDir() + "/locks.db", etcd(t),
	} {
		kind, _, _ := strings.Cut(store, ":")
		t.Run(kind, func(t *testing.T) {
			said(t, store, 0, "migrate")
			name := "job:" + kind
			said(t, store, 0, "run", name, "--", "true")
			said(t, store, 7, "run", "--fenced", name, "--", "sh", "-c", `test "$MORTISE_TOKEN" -gt 0 && exit 7`)
			said(t, store, codeNone, "inspect", name)

			p := begin(t, store, "run", name, "--", "sh", "-c", `echo "$$ $MORTISE_OWNER"; exec sleep 1000`)
			pid, owner, _ := strings.Cut(p.line(), " ")
			for _, command := range [][]string{{"ls", "job:"}, {"inspect", name}} {
				out := said(t, store, 0, append(command, "-o", "wide")...)
				check.ErrorIf(t, !strings.Contains(out, name) || !strings.Contains(out, owner), "%v: %s", command, out)
			}
			out := said(t, store, codeNotAcquired, "run", "--try", name, "--", "true")
			check.ErrorIf(t, !strings.Contains(out, "held by "+owner), "a second one: %s", out)
			check.ErrorIf(t, !alive(pid), "the command ended")
			said(t, store, 0, "unlock", "--yes", name)
			check.Equal(t, "exit code %d of the command whose lock was freed", p.code(), codeLost)
			gone(t, pid)
			said(t, store, codeNone, "inspect", name)
			said(t, store, 0, "doctor")
			said(t, store, 0, "bench", "--time", "50ms", "--callers", "2")
		})
	}
}

// etcd starts an etcd of one member, which .ci/etcd builds if it is not there, and returns its URL.
func etcd(t *testing.T) string {
	t.Helper()
	if out, err := exec.Command("../../.ci/etcd").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	free := func() string {
		l := check.Value(net.Listen("tcp", "127.0.0.1:0")).In(t)
		defer l.Close()
		return l.Addr().String()
	}
	clients, peers := free(), "http://"+free()
	c := exec.Command("../../bin/servers/etcd-3.6", "--name", "one", "--data-dir", t.TempDir(), "--unsafe-no-fsync",
		"--initial-cluster", "one="+peers, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
		"--listen-client-urls", "http://"+clients, "--advertise-client-urls", "http://"+clients, "--log-level", "error")
	c.SysProcAttr, c.Stderr = redistest.DieWithParent(), os.Stderr
	check.Done(t, c.Start())
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	for end := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
		answer, err := http.Get(fmt.Sprintf("http://%s/readyz", clients))
		if err == nil {
			answer.Body.Close()
		}
		if err == nil && answer.StatusCode == http.StatusOK {
			return "etcd://" + clients
		}
		check.FatalIf(t, time.Now().After(end), "etcd is not ready: %v", err)
	}
}
