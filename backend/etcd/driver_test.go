package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/cas"
	"github.com/mortise-go/mortise/backend/etcd"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

func TestNoEndpoints(t *testing.T) {
	_, err := mortise.New(etcd.New(clientv3.Config{}, ""))
	check.ErrorIf(t, !errors.Is(err, mortise.ErrInvalid), "%v, want ErrInvalid", err)
}

func TestAURLNamesAnEtcd(t *testing.T) {
	check.Long(t)
	s := newStore(t)
	locks, err := mortise.Open("etcd://" + server + "," + s.proxy.Addr() + "/" + s.prefix)
	check.NoError(t, err)
	l, err := locks.Lock(t.Context(), "n")
	check.NoError(t, err)
	r, err := s.past.Get(t.Context(), s.prefix+"lock/n")
	check.ErrorIf(t, err != nil || r.Count != 1, "below the prefix: %v, %v", r, err)
	check.NoError(t, l.Unlock(t.Context()))
	check.NoError(t, locks.Close())
}

func TestAWrongURL(t *testing.T) {
	locks, err := mortise.Open("etcds://u:secret@h,i:1/a/b")
	check.NoError(t, err)
	check.NoError(t, locks.Close())
	for _, url := range []string{
		"etcd:", "etcd://", "etcd://u:secret@h:1,", "etcd://u:secret@h:1/?no_such=1", "etcd://h/?ca=x",
		"etcds://h/?ca=/no/file",
		"etcd://u:secret@h/%zz", "etcd://u:secret@h/#x",
	} {
		_, err := mortise.Open(url)
		check.ErrorIf(t, !errors.Is(err, mortise.ErrInvalid) || strings.Contains(err.Error(), "secret"), "%s: %v", url, err)
	}
}

func closed(t *testing.T, d cas.Driver) {
	t.Helper()
	check.NoError(t, d.(interface{ Close() error }).Close())
}

// A driver that is closed says so, whether it has connected or not.
func TestAClosedDriver(t *testing.T) {
	check.Long(t)
	s := newStore(t)
	for _, use := range []bool{false, true} {
		d := s.Driver()
		if use {
			check.NoError(t, d.Swap(t.Context(), nil, nil))
		}
		closed(t, d)
		err := d.Swap(t.Context(), []cas.Swap{{Key: "k", Value: []byte("1")}}, make([]cas.Swapped, 1))
		check.ErrorIf(t, err == nil || backend.FaultOf(err).MayHaveRun, "Swap of a closed driver: %v", err)
	}
}

// Values that are together longer than etcd takes go out in several requests.
func TestABatchLongerThanARequest(t *testing.T) {
	check.Long(t)
	d := newStore(t).Driver()
	in := make([]cas.Swap, d.Limits().Batch)
	for i := range in {
		in[i] = cas.Swap{Key: strings.Repeat("k", i+1), Value: make([]byte, d.Limits().Value)}
	}
	out := make([]cas.Swapped, len(in))
	check.NoError(t, d.Swap(t.Context(), in, out))
	for i, r := range out {
		check.ErrorIf(t, r.Err != nil || !r.Done, "swap %d: %+v", i, r)
	}
	closed(t, d)
}

// A swap may have more notices than a transaction has room for: the first arrive, and the swap is done.
func TestASwapWithManyNotices(t *testing.T) {
	check.Long(t)
	d := newStore(t).Driver()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	listens, heard := make(chan bool, 1), make(chan string, 200)
	go func() {
		_ = d.Listen(ctx, "s1", func(h cas.Heard) {
			if h.Text == "" {
				listens <- true
				return
			}
			heard <- h.Text
		})
	}()
	<-listens
	in := make([]cas.Swap, d.Limits().Batch)
	for i := range in {
		to := []cas.Notice{{Session: "s1", Text: "x"}}
		for n := range 200 {
			to = append(to, cas.Notice{Session: fmt.Sprint("t", n), Text: "y"})
		}
		in[i] = cas.Swap{Key: strings.Repeat("k", i+1), Value: []byte("1"), Notices: to}
	}
	out := make([]cas.Swapped, len(in))
	check.NoError(t, d.Swap(ctx, in, out))
	for i, r := range out {
		check.ErrorIf(t, r.Err != nil || !r.Done, "swap %d: %+v", i, r)
		check.Equal(t, "heard %q", <-heard, "x")
	}
	cancel()
	closed(t, d)
}

// A session that is dead leaves nothing behind: what is sent to it goes with its etcd lease.
func TestADeadSessionLeavesNoNotices(t *testing.T) {
	check.Long(t)
	s := newStore(t)
	d := s.Driver()
	ctx, cancel := context.WithCancel(t.Context())
	_ = d.Listen(ctx, "s1", func(cas.Heard) { cancel() })
	notice := []cas.Notice{{Session: "s1", Text: "x"}, {Session: "s2", Text: "x"}}
	count := func() int64 {
		r, err := s.past.Get(t.Context(), s.prefix+"to/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		check.NoError(t, err)
		return r.Count
	}
	out := make([]cas.Swapped, 1)
	check.NoError(t, d.Swap(t.Context(), []cas.Swap{{Key: "k", Value: []byte("1"), Notices: notice}}, out))
	check.Equal(t, "%d keys of a session that listened, and of one that did not", count(), 2)
	s.EndSession("s1")
	check.Equal(t, "%d keys after the end of its lease", count(), 0)
	check.NoError(t, d.Swap(t.Context(), []cas.Swap{{Key: "l", Value: []byte("1"), Notices: notice}}, out))
	check.ErrorIf(t, !out[0].Done || count() != 0, "a swap with a notice to a dead session: %+v, %d keys", out[0], count())
	closed(t, d)
}

// Users and roles: what is missing is said, and a user with the right to the prefix's keys has locks.
func TestUsers(t *testing.T) {
	check.Long(t)
	t.Parallel()
	c, ctx := newCluster(t, 1), t.Context()
	root := direct(t, c.endpoints...)
	for _, name := range []string{"root", "shop", "other"} {
		_, err := root.UserAdd(ctx, name, "secret")
		check.NoError(t, err)
		_, err = root.RoleAdd(ctx, name)
		check.NoError(t, err)
		_, err = root.UserGrantRole(ctx, name, name)
		check.NoError(t, err)
	}
	_, err := root.RoleGrantPermission(ctx, "shop", "shop/", clientv3.GetPrefixRangeEnd("shop/"),
		clientv3.PermissionType(clientv3.PermReadWrite))
	check.NoError(t, err)
	_, err = root.AuthEnable(ctx)
	check.NoError(t, err)
	for user, remedy := range map[string]string{
		"": "check the user", "shop:wrong@": "check the user", "other:secret@": "grant the user", "shop:secret@": "",
	} {
		locks, err := mortise.Open("etcd://" + user + c.endpoints[0] + "/shop")
		check.NoError(t, err)
		l, err := locks.TryLock(ctx, "n")
		switch {
		case remedy == "":
			check.NoError(t, err)
			check.NoError(t, l.Unlock(ctx))
		case !errors.Is(err, mortise.ErrUnavailable) || !strings.Contains(err.Error(), remedy):
			t.Errorf("%q: %v, want the remedy: %s", user, err, remedy)
		}
		check.NoError(t, locks.Close())
	}
}

// A client whose machine has slept does not know how old its etcd lease is. It says how old it may be: the value is
// then not taken for older than it is.
func TestTheWritersMachineHasSlept(t *testing.T) {
	check.Long(t)
	t.Parallel()
	s := newStore(t)
	lease, err := s.past.Grant(t.Context(), 3600)
	check.NoError(t, err)
	eventually(t, "the lease is two seconds old", func() bool {
		r, err := s.past.TimeToLive(t.Context(), lease.ID)
		return err == nil && r.TTL < 3600-2
	})
	age := func(least, most time.Duration) time.Duration {
		s.put("lock/k", etcd.Packed(int64(lease.ID), least, most, []byte("1")))
		d, out := s.Driver(), make([]cas.Swapped, 1)
		check.NoError(t, d.Swap(t.Context(), []cas.Swap{{Key: "k", Version: cas.Look}}, out))
		closed(t, d)
		return out[0].Now - out[0].Stamp
	}
	d := age(0, 0)
	check.ErrorIf(t, d < time.Second, "sent when it asked for the lease: %v ago", d)
	d = age(0, time.Minute)
	check.ErrorIf(t, d != 0, "sent up to a minute later: %v ago, want nothing that is not certain", d)
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 10_000 {
		if is() {
			return
		}
		<-time.After(time.Millisecond)
	}
	t.Fatalf("not after 10,000 looks: %s", what)
}
