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
)

func TestAServerAnswersAndIsEmptyAfterARestart(t *testing.T) {
	s := Start(t)
	s.Must("SET", "a", "1")
	if v := s.Must("GET", "a"); v != "1" {
		t.Errorf("GET a = %v", v)
	}
	if v := s.Must("GET", "absent"); v != nil {
		t.Errorf("GET absent = %v", v)
	}
	s.Must("HSET", "h", "f", "2")
	if v := s.Must("HGETALL", "h"); !slices.Equal(v.([]any), []any{"f", "2"}) {
		t.Errorf("HGETALL h = %v", v)
	}
	var e Error
	if _, err := s.Do("GET", "h"); !errors.As(err, &e) || !strings.HasPrefix(e.Error(), "WRONGTYPE") {
		t.Errorf("GET h: %v", err)
	}
	addr := s.Addr()
	s.Stop()
	s.Stop()
	if _, err := s.Do("PING"); err == nil {
		t.Error("a stopped server answers")
	}
	s.Restart()
	if s.Addr() != addr {
		t.Errorf("it moved from %s to %s", addr, s.Addr())
	}
	if v := s.Must("DBSIZE"); v != int64(0) {
		t.Errorf("DBSIZE = %v after a restart", v)
	}
}

func TestWithAOFTheDataSurvives(t *testing.T) {
	s := Start(t, WithAOF())
	s.Must("SET", "a", "1")
	s.Restart()
	if v := s.Must("GET", "a"); v != "1" {
		t.Errorf("GET a = %v after a restart", v)
	}
}

func TestPasswordsAndUsersAreAsked(t *testing.T) {
	s := Start(t, WithPassword("secret"), WithACL("alice on >wonder ~a:* &* +get"))
	s.Must("SET", "a:1", "x")
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
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
		if err := send(c, step.say...); err != nil {
			t.Fatal(err)
		}
		if _, err := reply(r); (err == nil) != (step.want == "") || err != nil && !strings.HasPrefix(err.Error(), step.want) {
			t.Errorf("%v: %v, want %q", step.say, err, step.want)
		}
	}
}

func TestAPausedServerKeepsItsConnectionsAndAnswersWhenResumed(t *testing.T) {
	s := Start(t)
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s.Pause()
	if err := send(c, "PING"); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	r := bufio.NewReader(c)
	if _, err := reply(r); err == nil {
		t.Error("a paused server answers")
	}
	s.Resume()
	c.SetReadDeadline(time.Now().Add(patience))
	if v, err := reply(r); v != "PONG" {
		t.Errorf("after it was resumed: %v, %v", v, err)
	}
}

func TestAClusterOfOneServesEverySlot(t *testing.T) {
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
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
		readers = append(readers, bufio.NewReader(c))
		send(c, "PING")
		if v, err := reply(readers[len(readers)-1]); v != "PONG" {
			t.Fatal(v, err)
		}
	}
	if n := p.Connections(); n != 2 {
		t.Errorf("%d connections are open", n)
	}
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
	if n := p.Count(Named("GET")); n != 2 {
		t.Errorf("%d GETs", n)
	}
	if n := p.Count(nil); n != 4 {
		t.Errorf("%d commands", n)
	}
	if got := p.PerConnection(); got[1] != 3 || got[2] != 1 {
		t.Errorf("per connection: %v", got)
	}
	p.Cut()
	if _, err := reply(readers[0]); err == nil {
		t.Error("a connection survived Cut")
	}
}

func TestAClustersSlotsMoveWithTheirKeys(t *testing.T) {
	c := StartCluster(t, 3)
	const slot = 15495 // of "a"
	from, to := c.Master(slot), c.Masters[0]
	if from != c.Masters[2] {
		t.Fatal("the slot is at another master")
	}
	from.Must("SET", "a", "1")
	c.Move(slot, to, nil)
	if v := to.Must("GET", "a"); v != "1" {
		t.Errorf("GET a = %v", v)
	}
	c.Settle()
	if c.Master(slot) != to {
		t.Error("the slot is not known to have moved")
	}
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
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
	conn, err := net.Dial("unix", s.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	send(conn, "PING")
	if v, err := reply(bufio.NewReader(conn)); v != "PONG" {
		t.Errorf("over the socket: %v, %v", v, err)
	}
}

func TestSentinelsReplaceAMaster(t *testing.T) {
	x := StartSentinels(t, 1)
	first := x.Master()
	if first != x.Servers[0] {
		t.Fatal("they name another")
	}
	first.Stop()
	if next := x.AwaitMasterAfter(first); next != x.Servers[1] {
		t.Error("they name another")
	}
	if len(x.Addrs()) != 3 {
		t.Error(x.Addrs())
	}
}
