//go:build unix

package redistest

import (
	"bufio"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest/check"
)

func TestAServerAnswersAndIsEmptyAfterARestart(t *testing.T) {
	s := Start(t)
	s.Must("SET", "a", "1")
	check.Equal(t, "GET a = %v", s.Must("GET", "a"), "1")
	check.Equal(t, "GET absent = %v", s.Must("GET", "absent"), nil)
	s.Must("HSET", "h", "f", "2")
	v := s.Must("HGETALL", "h")
	check.ErrorIf(t, !slices.Equal(v.([]any), []any{"f", "2"}), "HGETALL h = %v", v)
	var e Error
	_, err := s.Do("GET", "h")
	check.ErrorIf(t, !errors.As(err, &e) || !strings.HasPrefix(e.Error(), "WRONGTYPE"), "GET h: %v", err)
	addr := s.Addr()
	s.Stop()
	s.Stop()
	check.ErrorIf(t, check.Err(s.Do("PING")) == nil, "a stopped server answers")
	s.Restart()
	check.ErrorIf(t, s.Addr() != addr, "it moved from %s to %s", addr, s.Addr())
	check.Equal(t, "DBSIZE = %v after a restart", s.Must("DBSIZE"), any(int64(0)))
}

func TestWithAOFTheDataSurvives(t *testing.T) {
	s := Start(t, WithAOF())
	s.Must("SET", "a", "1")
	s.Restart()
	check.Equal(t, "GET a = %v after a restart", s.Must("GET", "a"), "1")
}

func TestPasswordsAndUsersAreAsked(t *testing.T) {
	s := Start(t, WithPassword("secret"), WithACL("alice on >wonder ~a:* &* +get"))
	s.Must("SET", "a:1", "x")
	c, err := net.Dial("tcp", s.Addr())
	check.NoError(t, err)
	defer c.Close()
	r := bufio.NewReader(c)
	for _, step := range []struct {
		say  []string
		want string
	}{
		{[]string{"GET", "a:1"}, "NOAUTH"},
		{[]string{"AUTH", "alice", "wonder"}, ""},
		{[]string{"GET", "a:1"}, ""},
		{[]string{"SET", "a:1", "y"}, "NOPERM"},
	} {
		check.NoError(t, send(c, step.say...))
		if _, err := reply(r); (err == nil) != (step.want == "") || err != nil && !strings.HasPrefix(err.Error(), step.want) {
			t.Errorf("%v: %v, want %q", step.say, err, step.want)
		}
	}
}

func TestAPausedServerKeepsItsConnectionsAndAnswersWhenResumed(t *testing.T) {
	s := Start(t)
	c, err := net.Dial("tcp", s.Addr())
	check.NoError(t, err)
	defer c.Close()
	s.Pause()
	check.NoError(t, send(c, "PING"))
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	r := bufio.NewReader(c)
	check.ErrorIf(t, check.Err(reply(r)) == nil, "a paused server answers")
	s.Resume()
	c.SetReadDeadline(time.Now().Add(patience))
	v, err := reply(r)
	check.ErrorIf(t, v != "PONG", "after it was resumed: %v, %v", v, err)
}

func TestAClusterOfOneServesEverySlot(t *testing.T) {
	check.Long(t)
	s := Start(t, WithCluster())
	for _, key := range []string{"a", "b", "{x}y"} {
		s.Must("SET", key, "1")
	}
	s.Restart()
	s.Must("SET", "a", "1")
}

func TestTheProxyCountsCommandsPerConnection(t *testing.T) {
	s := Start(t)
	p := NewProxy(t, s.Addr())
	var readers []*bufio.Reader
	var conns []net.Conn
	for range 2 {
		c, err := net.Dial("tcp", p.Addr())
		check.NoError(t, err)
		defer c.Close()
		conns = append(conns, c)
		readers = append(readers, bufio.NewReader(c))
		send(c, "PING")
		if v, err := reply(readers[len(readers)-1]); v != "PONG" {
			t.Fatal(v, err)
		}
	}
	check.Equal(t, "%d connections are open", p.Connections(), 2)
	p.Reset()
	big := strings.Repeat("x\r\n*1\r\n", 50_000)
	// A pipeline in one write, an inline command, an argument that looks like RESP.
	send(conns[0], "set", "big", big)
	conns[0].Write([]byte("GET big\r\n*1\r\n$4\r\nPING\r\n"))
	for _, want := range []string{"OK", big, "PONG"} {
		if v, err := reply(readers[0]); v != want {
			t.Fatalf("%.20v, %v", v, err)
		}
	}
	send(conns[1], "GET", "absent")
	reply(readers[1])

	want := []string{"SET big " + big, "GET big", "PING", "GET absent"}
	if got := p.Commands(); !slices.Equal(got, want) {
		t.Errorf("commands %.80q", got)
	}
	check.Equal(t, "%d GETs", p.Count(Named("GET")), 2)
	check.Equal(t, "%d commands", p.Count(nil), 4)
	if got := p.PerConnection(); got[1] != 3 || got[2] != 1 {
		t.Errorf("per connection: %v", got)
	}
	p.Cut()
	check.ErrorIf(t, check.Err(reply(readers[0])) == nil, "a connection survived Cut")
}

func TestAClustersSlotsMoveWithTheirKeys(t *testing.T) {
	check.Long(t)
	c := StartCluster(t, 3)
	const slot = 15495 // of "a"
	from, to := c.Master(slot), c.Masters[0]
	check.FatalIf(t, from != c.Masters[2], "the slot is at another master")
	from.Must("SET", "a", "1")
	c.Move(slot, to, nil)
	check.Equal(t, "GET a = %v", to.Must("GET", "a"), "1")
	c.Settle()
	check.ErrorIf(t, c.Master(slot) != to, "the slot is not known to have moved")
	replica := c.Replica(to)
	c.Failover(replica)
	replica.Must("SET", "a", "2")
}

func TestTLSAsksForACertificate(t *testing.T) {
	x := NewTLS(t)
	s := Start(t, WithTLS(x), WithSocket())
	for what, c := range map[string]struct {
		config *tls.Config
		ok     bool
	}{
		"with one":             {x.Config(), true},
		"without":              {x.Stranger(), false},
		"of another authority": {NewTLS(t).Config(), false},
	} {
		conn, err := tls.Dial("tcp", s.TLSAddr(), c.config)
		if err == nil {
			defer conn.Close()
			if err = send(conn, "PING"); err == nil {
				_, err = reply(bufio.NewReader(conn))
			}
		}
		check.ErrorIf(t, (err == nil) != c.ok, "%s: %v", what, err)
	}
	conn, err := net.Dial("unix", s.Socket())
	check.NoError(t, err)
	defer conn.Close()
	send(conn, "PING")
	v, err := reply(bufio.NewReader(conn))
	check.ErrorIf(t, v != "PONG", "over the socket: %v, %v", v, err)
}

func TestSentinelsReplaceAMaster(t *testing.T) {
	check.Long(t)
	x := StartSentinels(t, 1)
	first := x.Master()
	check.FatalIf(t, first != x.Servers[0], "they name another")
	first.Stop()
	next := x.AwaitMasterAfter(first)
	check.ErrorIf(t, next != x.Servers[1], "they name another")
	if len(x.Addrs()) != 3 {
		t.Error(x.Addrs())
	}
}
