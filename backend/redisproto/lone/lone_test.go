package lone

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// client is a client library with one connection.
type client struct {
	net.Conn
	in *bufio.Reader
}

func (c *client) do(command string) (string, error) {
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, command+"\r\n"); err != nil {
		_ = c.Close()
		return "", err
	}
	reply, err := c.in.ReadString('\n')
	if err != nil {
		_ = c.Close()
	}
	return reply, err
}

// bed is a server that gets commands and is told its replies, and the Line of a client of that.
type bed struct {
	*Line[*client]
	t        *testing.T
	accepted chan net.Conn
	more     bool // the client needs a second connection
	wrap     func(net.Conn) net.Conn
}

func start(t *testing.T) *bed {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, accepted: make(chan net.Conn, 10)}
	b.Line = New(func(dial Dial) (*client, error) {
		connect := func() (net.Conn, error) {
			return dial(func() (net.Conn, error) {
				c, err := net.Dial("tcp", l.Addr().String())
				if err == nil && b.wrap != nil {
					c = b.wrap(c)
				}
				return c, err
			})
		}
		nc, err := connect()
		if err != nil {
			return nil, err
		}
		if b.more {
			_, err = connect()
		}
		return &client{nc, bufio.NewReader(nc)}, err
	}, func(c *client) { _ = c.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b.accepted <- c
		}
	}()
	t.Cleanup(func() { b.Line.Close(); l.Close() })
	return b
}

// server is the server's side of a connection.
type server struct {
	*bufio.Reader
	io.Writer
}

// connect asks for a connection as often as it takes.
func (b *bed) connect() *server {
	b.t.Helper()
	b.mu.Lock()
	b.asked, b.until = 0, time.Since(b.epoch)+time.Hour // the machine may be busy
	b.mu.Unlock()
	for range worth {
		if b.Ready() {
			b.t.Fatal("there is a connection already")
		}
	}
	c := <-b.accepted
	b.t.Cleanup(func() { c.Close() })
	for !b.Ready() {
		time.Sleep(time.Millisecond)
	}
	return &server{bufio.NewReader(c), c}
}

// call is what a lone caller does.
func (b *bed) call(ctx context.Context) (reply string, rest Rest, err error) {
	c, ok := b.Take()
	if !ok {
		b.t.Error("there is no client")
		return "", nil, io.EOF
	}
	b.Begin(ctx)
	reply, err = c.do("ask")
	return reply, b.End(), err
}

// answer has the server read a command and reply.
func answer(s *server, reply string) {
	_, _ = s.ReadString('\n')
	_, _ = io.WriteString(s, reply)
}

func (b *bed) wantsReply(ctx context.Context, s *server) {
	b.t.Helper()
	go answer(s, ":1\r\n")
	if reply, rest, err := b.call(ctx); reply != ":1\r\n" || rest != nil || err != nil {
		b.t.Errorf("%q, left %v, %v", reply, rest != nil, err)
	}
}

func TestTheClientsReplyHoldsWhereTheCallerStays(t *testing.T) {
	b := start(t)
	s := b.connect()
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 * often {
		b.wantsReply(ctx, s)
		b.wantsReply(context.Background(), s)
		other, end := context.WithCancel(t.Context())
		b.wantsReply(other, s)
		end()
		b.wantsReply(context.Background(), s)
	}
	for range 2 * often {
		b.wantsReply(ctx, s)
	}
	cancel() // between two calls
	b.wantsReply(context.Background(), s)
	b.wantsReply(t.Context(), s)
}

func TestACallerThatLeavesIsFreeAtOnceAndTheReplyIsAwaited(t *testing.T) {
	for _, beforehand := range []bool{false, true} {
		for _, calls := range []int{0, 2 * often} {
			b := start(t)
			s := b.connect()
			ctx, cancel := context.WithCancel(t.Context())
			for range calls {
				b.wantsReply(ctx, s)
			}
			asked := make(chan struct{})
			go func() {
				_, _ = s.ReadString('\n')
				close(asked)
				cancel()
			}()
			if beforehand {
				cancel()
			}
			_, rest, err := b.call(ctx)
			if rest == nil || !errors.Is(err, errLeft) {
				t.Fatalf("left beforehand %v: left %v, %v", beforehand, rest != nil, err)
			}
			<-asked // the command was sent all the same
			if b.Ready() {
				t.Error("the connection is used though a reply is to come")
			}
			replied := make(chan string)
			go func() { replied <- fmt.Sprint(rest()) }()
			select {
			case got := <-replied:
				t.Fatalf("before the reply: %s", got)
			case <-time.After(20 * time.Millisecond):
			}
			reply, want := ":-12\r\n", "-12 true <nil>"
			if beforehand {
				reply, want = "-NOSCRIPT 1\r\n", "0 false <nil>"
			}
			for i := range reply { // it may come in parts
				_, _ = io.WriteString(s, reply[i:i+1])
			}
			if got := <-replied; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if _, err := s.ReadByte(); !errors.Is(err, io.EOF) {
				t.Errorf("the connection is not closed: %v", err)
			}
			b.wantsReply(t.Context(), b.connect())
		}
	}
}

// The next call may have been told that there is a connection before the call that it follows was left. It is not to
// await the other's reply for its own.
func TestTheConnectionOfACallThatWasLeftIsTakenByNoOther(t *testing.T) {
	b := start(t)
	b.connect()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, rest, _ := b.call(ctx); rest == nil {
		t.Fatal("the caller has not left")
	}
	if c, ok := b.Take(); ok {
		b.Begin(t.Context())
		_, err := c.do("ask")
		t.Errorf("taken, for a call that came to %v; a reply is to come: %v", err, b.End() != nil)
	}
}

func TestAReplyThatDoesNotComeIsAnError(t *testing.T) {
	for what, end := range map[string]func(b *bed, s *server){
		"the server closes the connection": func(_ *bed, s *server) { s.Writer.(io.Closer).Close() },
		"the line is closed":               func(b *bed, _ *server) { b.Line.Close() },
	} {
		b := start(t)
		s := b.connect()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, rest, _ := b.call(ctx)
		if rest == nil {
			t.Fatalf("%s: the caller has not left", what)
		}
		go end(b, s)
		if _, _, err := rest(); err == nil {
			t.Errorf("%s: there is a reply", what)
		}
	}
}

func TestABrokenConnectionIsReplaced(t *testing.T) {
	b := start(t)
	for range worth {
		b.Ready()
	}
	(<-b.accepted).Close()
	for !b.Ready() {
		time.Sleep(time.Millisecond)
	}
	if _, rest, err := b.call(t.Context()); rest != nil || err == nil {
		t.Errorf("left %v, %v", rest != nil, err)
	}
	b.wantsReply(t.Context(), b.connect())
}

func TestAClientThatNeedsTwoConnectionsHasNoLine(t *testing.T) {
	b := start(t)
	b.more = true
	b.asks(worth)
	(<-b.accepted).Close()
	b.awaitMade()
	if b.Ready() {
		t.Error("it has")
	}
}

// asks is for a connection, as often as that in one period.
func (b *bed) asks(n int) {
	b.t.Helper()
	b.epoch, b.until = time.Now(), period
	for range n {
		if b.Ready() {
			b.t.Fatal("there is a connection")
		}
	}
}

// awaitMade waits until no connection is being made.
func (b *bed) awaitMade() {
	for made := false; !made; time.Sleep(time.Millisecond) {
		b.mu.Lock()
		made = !b.making
		b.mu.Unlock()
	}
}

func (b *bed) wantsNoDial(when string) {
	b.t.Helper()
	select {
	case <-b.accepted:
		b.t.Error("dialed ", when)
	case <-time.After(20 * time.Millisecond):
	}
}

// A server that refuses connections, for a limit or a password, is not asked at each few calls.
func TestAConnectionIsAskedForOnceInAPeriod(t *testing.T) {
	b := start(t)
	b.more = true
	b.asks(worth)
	(<-b.accepted).Close()
	b.awaitMade()
	b.epoch = time.Now() // the period is not over, however slow the machine is
	for range 10 * worth {
		b.Ready()
	}
	b.wantsNoDial("twice in a period")
	b.epoch = b.epoch.Add(-2 * period)
	for range worth {
		b.Ready()
	}
	(<-b.accepted).Close()
}

func TestCallsThatAreFarApartGetNoConnection(t *testing.T) {
	b := start(t)
	for range 2 * worth {
		b.Ready()
		b.epoch = b.epoch.Add(-period / 8)
	}
	b.wantsNoDial("for 8 calls in a period")
}

// The server may have closed it meanwhile.
func TestAConnectionThatWasIdleIsNotUsed(t *testing.T) {
	b := start(t)
	s := b.connect()
	b.wantsReply(t.Context(), s)
	b.epoch = b.epoch.Add(-2 * period)
	b.wantsReply(t.Context(), b.connect())
	if _, err := s.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the idle one is not closed: %v", err)
	}
}

// Other callers ask for a connection while a call takes long.
func TestAConnectionIsNotReplacedWhileACallIsUnderWay(t *testing.T) {
	b := start(t)
	s := b.connect()
	replied := make(chan string)
	go func() {
		reply, _, _ := b.call(t.Context())
		replied <- reply
	}()
	_, _ = s.ReadString('\n')
	b.epoch = b.epoch.Add(-2 * period)
	for range 2 * worth {
		if !b.Ready() {
			t.Fatal("it is taken for idle")
		}
	}
	b.wantsNoDial("beside a call")
	_, _ = io.WriteString(s, ":1\r\n")
	if reply := <-replied; reply != ":1\r\n" {
		t.Errorf("got %q", reply)
	}
}

// deaf has no deadlines, as a channel of ssh.
type deaf struct{ net.Conn }

func (deaf) SetDeadline(time.Time) error     { return errors.ErrUnsupported }
func (deaf) SetReadDeadline(time.Time) error { return errors.ErrUnsupported }

func TestAConnectionWithoutDeadlinesIsNotUsed(t *testing.T) {
	b := start(t)
	b.wrap = func(c net.Conn) net.Conn { return deaf{c} }
	b.asks(worth)
	s := <-b.accepted
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("it is not closed: %v", err)
	}
	b.epoch = b.epoch.Add(-2 * period)
	for range 2 * worth {
		if b.Ready() {
			t.Fatal("it is used")
		}
	}
	b.wantsNoDial("again")
}
