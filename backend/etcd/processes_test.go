package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/etcd"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/child"
)

// Test processes on the endpoints and the prefix that are the first variable's: one that holds n until it is
// killed, or one that takes and releases n, and makes a file inside, the second variable's.
const (
	holderOf = "MORTISE_TEST_HOLDER_OF"
	workerOf = "MORTISE_TEST_WORKER_OF"
	inside   = "MORTISE_TEST_INSIDE"
)

// lease is that of a holder that is killed or stopped.
const lease = 2 * time.Second

// rounds is how often a worker takes the lock.
const rounds = 60

func newClient(of string, opts ...mortise.ClientOption) (*mortise.Client, error) {
	endpoints, prefix, _ := strings.Cut(of, " ")
	return mortise.New(etcd.New(clientv3.Config{Endpoints: strings.Split(endpoints, ",")}, prefix), opts...)
}

func client(t *testing.T, of string) *mortise.Client {
	t.Helper()
	c, err := newClient(of)
	check.NoError(t, err)
	t.Cleanup(func() { check.NoError(t, c.Shutdown(background)) })
	return c
}

func (s *store) of() string { return server + " " + s.prefix }

func hold(of string) error {
	c, err := newClient(of, mortise.WithWatchdogTimeout(lease))
	if err != nil {
		return err
	}
	l, err := c.Lock(background, "n")
	if err != nil {
		return err
	}
	fmt.Println("holds")
	<-l.Context().Done()
	fmt.Println("lost:", errors.Is(l.Err(), mortise.ErrLost))
	select {}
}

// work takes n, and fails if another process is inside. While etcd has no leader it tries again.
func work(of, inside string) error {
	c, err := newClient(of)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := io.ReadAll(os.Stdin); err != nil { // until all are ready
		return err
	}
	for done := 0; done < rounds; {
		l, err := c.Lock(background, "n", mortise.WithWait(time.Minute))
		if errors.Is(err, mortise.ErrUnavailable) {
			<-time.After(50 * time.Millisecond)
			continue
		}
		if err != nil {
			return err
		}
		if err := visit(l, inside); err != nil {
			return err
		}
		if err := l.Unlock(background); err != nil && !errors.Is(err, mortise.ErrUnavailable) {
			return err
		}
		done++
		fmt.Println("done")
	}
	os.Exit(0)
	return nil
}

// visit makes the file and removes it. If the lock is lost meanwhile, its process says so, and leaves before.
func visit(l *mortise.Lease, inside string) error {
	f, err := os.OpenFile(inside, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("another process is inside: %w", err)
	}
	<-time.After(time.Millisecond)
	return errors.Join(l.Err(), f.Close(), os.Remove(inside))
}

// A killed process's lock is free for one that waits.
func TestAKilledHoldersLockIsFree(t *testing.T) {
	check.Long(t)
	t.Parallel()
	s := newStore(t)
	p := child.Start(t, holderOf+"="+s.of())
	p.Says(t, "holds")
	p.Kill(t)
	killed := time.Now()
	l, err := client(t, s.of()).Lock(t.Context(), "n", mortise.WithWait(time.Minute))
	check.NoError(t, err)
	d := time.Since(killed)
	check.ErrorIf(t, d > lease+2*time.Second, "free %v after the end of its holder, whose lease was %v", d, lease)
	check.NoError(t, l.Unlock(t.Context()))
}

// A killed process's lock is free for clients that ask once, too: none of them sees how long it is held.
func TestAKilledHoldersLockIsFreeForClientsThatAskOnce(t *testing.T) {
	check.Long(t)
	t.Parallel()
	s := newStore(t)
	p := child.Start(t, holderOf+"="+s.of())
	p.Says(t, "holds")
	p.Kill(t)
	for began := time.Now(); ; {
		c, err := newClient(s.of())
		check.NoError(t, err)
		l, err := c.TryLock(t.Context(), "n")
		if err == nil {
			check.NoError(t, l.Unlock(t.Context()))
		}
		check.NoError(t, c.Shutdown(t.Context()))
		if err == nil {
			return
		}
		check.FatalIf(t, !errors.Is(err, mortise.ErrNotAcquired), "TryLock: %v", err)
		d := time.Since(began)
		check.FatalIf(t, d > 2*lease+time.Second, "not in after %v of a lease of %v", d, lease)
	}
}

// A stopped holder loses its lock, and knows it when it goes on.
func TestAStoppedHolderLosesItsLock(t *testing.T) {
	check.Long(t)
	t.Parallel()
	s := newStore(t)
	p := child.Start(t, holderOf+"="+s.of())
	p.Says(t, "holds")
	check.NoError(t, p.Process.Signal(syscall.SIGSTOP))
	l, err := client(t, s.of()).Lock(t.Context(), "n", mortise.WithWait(time.Minute))
	check.NoError(t, err)
	check.NoError(t, p.Process.Signal(syscall.SIGCONT))
	p.Says(t, "lost: true")
	check.NoError(t, l.Err())
	check.NoError(t, l.Unlock(t.Context()))
}

// A holder whose connections break, and whose session's etcd lease ends, holds on, and nobody else gets in.
func TestAHolderKeepsItsLockWithoutItsSession(t *testing.T) {
	check.Long(t)
	s := newStore(t)
	a, err := mortise.New(s.Backend())
	check.NoError(t, err)
	b := client(t, s.of())
	l, err := a.Lock(t.Context(), "n")
	check.NoError(t, err)
	leases, err := s.past.Leases(t.Context())
	check.NoError(t, err)
	for _, x := range leases.Leases {
		keys, err := s.past.TimeToLive(t.Context(), x.ID, clientv3.WithAttachedKeys())
		check.NoError(t, err)
		if len(keys.Keys) > 0 && strings.HasPrefix(string(keys.Keys[0]), s.prefix) {
			_, err := s.past.Revoke(t.Context(), x.ID)
			check.NoError(t, err)
		}
	}
	s.Cut()
	_, err = b.TryLock(t.Context(), "n")
	check.ErrorIf(t, !errors.Is(err, mortise.ErrNotAcquired), "another client's TryLock: %v", err)
	check.NoError(t, l.Err())
	check.NoError(t, l.Unlock(t.Context()))
	check.NoError(t, a.Shutdown(t.Context()))
}

// cluster is an etcd of several members.
type cluster struct {
	endpoints []string
	members   []*member
}

func newCluster(t *testing.T, n int) *cluster {
	t.Helper()
	var dirs []string
	for range n {
		dirs = append(dirs, t.TempDir())
	}
	c := &cluster{members: newMembers(dirs...)}
	for _, m := range c.members {
		c.endpoints = append(c.endpoints, m.addr)
	}
	c.start(t)
	return c
}

// start starts the members, and waits until they are ready.
func (c *cluster) start(t *testing.T) {
	t.Helper()
	for _, m := range c.members {
		check.NoError(t, m.start())
		t.Cleanup(m.stop)
	}
	for _, m := range c.members {
		check.NoError(t, m.ready())
	}
}

// of is what a test process is told of the cluster.
func (c *cluster) of() string { return strings.Join(c.endpoints, ",") + " locks/" }

// leader returns the member that leads.
func (c *cluster) leader(t *testing.T) *member {
	t.Helper()
	for i, at := range c.endpoints {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		s, err := direct(t, at).Status(ctx, at)
		cancel()
		if err == nil && s.Leader == s.Header.MemberId {
			return c.members[i]
		}
	}
	t.Fatal("no member leads")
	return nil
}

// Processes are never two inside, and each gets in as often as it asks, while the leader is killed or stopped.
func TestTheLeaderIsLost(t *testing.T) {
	check.Long(t)
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			c, at := newCluster(t, 3), t.TempDir()+"/inside"
			var all []*child.Process
			for range 4 {
				all = append(all, child.Start(t, workerOf+"="+c.of(), inside+"="+at))
			}
			for _, p := range all {
				p.Says(t, "ready")
			}
			for _, p := range all {
				check.NoError(t, p.In.Close())
			}
			all[0].Says(t, "done")
			leader := c.leader(t)
			check.NoError(t, leader.cmd.Process.Signal(signal))
			for i, p := range all {
				for n := range rounds {
					if i > 0 || n > 0 {
						p.Says(t, "done")
					}
				}
			}
		})
	}
}

// Locks are in the members' files: when all of them have been killed and run again, a lock is held as before.
func TestALockOutlivesTheServers(t *testing.T) {
	check.Long(t)
	t.Parallel()
	c := newCluster(t, 3)
	l, err := client(t, c.of()).Lock(t.Context(), "n", mortise.Fenced())
	check.NoError(t, err)
	for _, m := range c.members {
		m.stop()
	}
	c.start(t)
	other := client(t, c.of())
	_, err = other.TryLock(t.Context(), "n")
	check.Is(t, "another client's TryLock", err, mortise.ErrNotAcquired)
	check.NoError(t, l.Err())
	check.NoError(t, l.Unlock(t.Context()))
	next, err := other.Lock(t.Context(), "n", mortise.Fenced())
	check.NoError(t, err)
	check.ErrorIf(t, next.Token() <= l.Token(), "token %d after %d", next.Token(), l.Token())
	check.NoError(t, next.Unlock(t.Context()))
}

// A member that is cut off from the majority grants nothing; it does when the others go on.
func TestAMinorityGrantsNothing(t *testing.T) {
	check.Long(t)
	t.Parallel()
	c := newCluster(t, 3)
	one := client(t, c.endpoints[0]+" locks/")
	l, err := one.Lock(t.Context(), "n")
	check.NoError(t, err)
	check.NoError(t, l.Unlock(t.Context()))
	signal := func(s syscall.Signal) {
		for _, m := range c.members[1:] {
			check.NoError(t, m.cmd.Process.Signal(s))
		}
	}
	signal(syscall.SIGSTOP)
	_, err = one.Lock(t.Context(), "n", mortise.WithWait(2*time.Second))
	check.Is(t, "Lock by a minority", err, mortise.ErrUnavailable)
	signal(syscall.SIGCONT)
	check.NoError(t, c.members[0].ready())
	l, err = one.Lock(t.Context(), "n", mortise.WithWait(time.Minute))
	check.NoError(t, err)
	check.NoError(t, l.Unlock(t.Context()))
}
