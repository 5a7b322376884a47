package redisproto

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// Each row is a message about a grant that the server made a time after the reply to the request of the pair, and when
// the message came, by this process's clock, after the request.
func TestWhenAGrantBegan(t *testing.T) {
	const server = 1000 * time.Hour
	never := time.Duration(-1)
	for what, row := range map[string]struct{ granted, came, want time.Duration }{
		"at once":                              {0, 0, 0},
		"a second later":                       {time.Second, time.Second, 990 * time.Millisecond},
		"heard late":                           {time.Second, time.Minute, 990 * time.Millisecond},
		"the server's clock is faster":         {1010 * time.Millisecond, time.Second, 999900 * time.Microsecond},
		"no later than it was heard":           {15 * time.Millisecond, 0, 0},
		"the server's clock was set":           {1100 * time.Millisecond, time.Second, never},
		"the server's clock was set back":      {-time.Millisecond, time.Second, never},
		"a pair that is too old":               {100 * time.Second, 100 * time.Second, never},
		"a message that is too old":            {time.Second, 100 * time.Second, never},
		"a pair of 99 s, which drifts":         {99 * time.Second, 99 * time.Second, 99*time.Second - 990*time.Millisecond},
		"another server, which is years ahead": {100000 * time.Hour, time.Second, never},
	} {
		p := pair{sent: time.Now(), server: server}
		now := p.sent.Add(row.came)
		got := p.since(server+row.granted, now).Sub(p.sent)
		if row.want == never {
			row.want = row.came - time.Hour
		}
		if got != row.want {
			t.Errorf("%s: %v after the request, want %v", what, got, row.want)
		}
	}
	now := time.Now()
	if got := (pair{sent: now}).since(server, now); !got.Equal(now.Add(-time.Hour)) {
		t.Errorf("without the server's time: %v", got)
	}
	// A machine that sleeps has a wall clock that goes on.
	slept := pair{sent: now.Round(0).Add(-100 * time.Second), server: server}
	if got := slept.since(server, now); !got.Equal(now.Add(-time.Hour)) {
		t.Errorf("after 100 s of sleep: %v before now", now.Sub(got))
	}
}

func TestAMessageAboutAGrant(t *testing.T) {
	g, entry, is := grantIn("1700000000000001:7:1000:ptag:-:host/1/x:2")
	want := grant{at: 1700000000000001 * time.Microsecond, token: 7, lease: time.Second}
	if !is || g != want || entry != "ptag:-:host/1/x:2" {
		t.Errorf("%+v, %q, %v", g, entry, is)
	}
	if g, _, _ := grantIn("1:0:60000:p"); g.lease != time.Second {
		t.Errorf("a lease of %v: longer than a first lease", g.lease)
	}
	for _, text := range []string{"", "1", "1:2", "1:2:3", "x:2:3:p", "1:-2:3:p", "1:2:9223372036854775808:p", ":::"} {
		if _, _, is := grantIn(text); is {
			t.Errorf("%q is a grant", text)
		}
	}
}

// early is an adapter whose session hears a message about the entry before the reply to the request for it.
type early struct {
	fakeAdapter
	s *core
}

func (a *early) hears(channel, entry string) {
	t := backend.Topic{Kind: backend.KindLock, Name: "n", Owner: ownChannel}
	a.s.message(t, "n1000:"+entry)
	a.s.message(t, "r"+entry)
}

func (a *early) Enrol(_ context.Context, k EnrolKeys, x EnrolArgs) ([]int64, error) {
	a.hears(k.Channel, x.Entry)
	return []int64{0, 1000, 0, 1}, nil
}

func (a *early) Serve(_ context.Context, k ServeKeys, x ServeArgs) ([]int64, error) {
	a.hears(k.Channel, x.Entry)
	return []int64{2, 0}, nil
}

// queueing is a recorder that hears of entries, too.
type queueing struct{ recorder }

func (q *queueing) Granted(backend.Topic, backend.Grant)   {}
func (q *queueing) Reserved(_ backend.Topic, entry uint64) { q.add(fmt.Sprint("reserved ", entry)) }
func (q *queueing) First(_ backend.Topic, entry uint64, after time.Duration) {
	q.add(fmt.Sprint("first ", entry, " ", after))
}
func (q *queueing) Wanted(backend.Topic, uint64) {}
func (q *queueing) Freed(backend.Topic)          {}

func TestAMessageAboutAnEntryBeforeTheReply(t *testing.T) {
	for _, grants := range []string{"0", "1"} {
		t.Setenv("MORTISE_GRANTS", grants)
		a, h := new(early), new(queueing)
		s := check.Value(New(func() (Adapter, error) { return a, nil }).Open(h)).In(t).(*session)
		a.s = s.core
		q := queue{s.core}
		_, err := q.Enrol(t.Context(), backend.EnrolRequest{
			AcquireRequest: backend.AcquireRequest{Name: "n", Owner: "c:1", Lease: time.Minute}, Entry: 7})
		check.NoError(t, err)
		_, err = q.Serve(t.Context(), backend.ServeRequest{Name: "n", Owner: "c:1", Next: "c:2", Yield: true, Entry: 8})
		check.NoError(t, err)
		want := []string{"first 7 1s", "reserved 7", "first 8 1s", "reserved 8"}
		got := h.take()
		check.ErrorIf(t, !slices.Equal(got, want), "with grants %q: %q, want %q", grants, got, want)
		check.NoError(t, s.Close())
	}
}

// clustered is an adapter whose client is one of a cluster, without sharded pub/sub.
type clustered struct{ early }

func (*clustered) Features() Features { return Features{Cluster: true} }

// believing notes when grants were made.
type believing struct {
	queueing
	from []time.Time
}

func (b *believing) Granted(_ backend.Topic, g backend.Grant) { b.from = append(b.from, g.From) }

// In a cluster a message by PUBLISH comes from whichever server granted, and the pair may be of one that has failed.
func TestAMessageThroughAClusterTellsNoTime(t *testing.T) {
	t.Setenv("MORTISE_GRANTS", "1")
	for name, a := range map[string]Adapter{"a server": new(early), "a cluster": new(clustered)} {
		h, now := new(believing), time.Now()
		s := check.Value(New(func() (Adapter, error) { return a, nil }).Open(h)).In(t).(*session)
		s.pairs.asks(lockTopic("n"), "c:1", 1)
		s.pairs.note(lockTopic("n"), now, time.Hour)
		queue{s.core}.granted(h, backend.Topic{Name: "n"}, "c:1", grant{at: time.Hour, lease: time.Second})
		check.FatalIf(t, len(h.from) != 1, "%s: %d grants", name, len(h.from))
		over := h.from[0].Before(now.Add(-time.Minute))
		check.ErrorIf(t, over != (name == "a cluster"), "%s: the grant was made at %v, now is %v", name, h.from[0], now)
		check.NoError(t, s.Close())
	}
}

// A name that a client polls is not watched, so nothing tells when its pair is not needed any more.
func TestPollingLeavesNoPairs(t *testing.T) {
	t.Setenv("MORTISE_GRANTS", "1")
	a := new(early)
	s := check.Value(New(func() (Adapter, error) { return a, nil }).Open(new(recorder))).In(t).(*session)
	a.s = s.core
	for i := range 10 {
		r := backend.AcquireRequest{Name: fmt.Sprint(i), Owner: "c:1", Lease: time.Minute}
		_, err := queue{s.core}.Enrol(t.Context(), backend.EnrolRequest{AcquireRequest: r, Polls: time.Millisecond})
		check.NoError(t, err)
	}
	check.Equal(t, "%d pairs are left", len(s.pairs.all), 0)
	check.NoError(t, s.Close())
}

// A reply that comes after an interruption is that of the server before.
func TestAReplyFromBeforeAnInterruptionIsNoPair(t *testing.T) {
	var p pairs
	n := lockTopic("n")
	p.asks(n, "c:1", 1)
	sent := time.Now()
	p.note(n, sent, time.Hour)
	p.doubt(n)
	p.note(n, sent.Add(time.Nanosecond), time.Hour)
	check.Equal(t, "the server's time is %v", p.of(n).server, 0)
	p.note(n, time.Now().Add(time.Millisecond), time.Hour)
	check.Equal(t, "after a new request the server's time is %v", p.of(n).server, time.Hour)
}
