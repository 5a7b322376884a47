//go:build unix

package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// Error is an error reply of the server.
type Error string

func (e Error) Error() string { return string(e) }

// Do sends one command over a connection of its own, as the default user, and
// returns its reply: a string, an int64, nil, or a []any of these. An error
// reply is returned as an [Error].
func (s *Server) Do(args ...string) (any, error) {
	c, err := net.DialTimeout("tcp", s.Addr(), patience)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	r := bufio.NewReader(c)
	if s.password != "" {
		if err := send(c, "AUTH", s.user, s.password); err != nil {
			return nil, err
		}
		if _, err := reply(r); err != nil {
			return nil, err
		}
	}
	if err := send(c, args...); err != nil {
		return nil, err
	}
	return reply(r)
}

// Must is Do that fails the test on an error.
func (s *Server) Must(args ...string) any {
	s.t.Helper()
	v, err := s.Do(args...)
	if err != nil {
		s.t.Fatalf("redistest: %s: %v", strings.Join(args, " "), err)
	}
	return v
}

// Major is the first number of the server's version, as HELLO tells it to clients.
func (s *Server) Major() int {
	s.t.Helper()
	hello := s.Must("HELLO").([]any)
	for i := 0; i+1 < len(hello); i += 2 {
		if hello[i] == "version" {
			var n int
			if _, err := fmt.Sscanf(fmt.Sprint(hello[i+1]), "%d.", &n); err == nil {
				return n
			}
		}
	}
	s.t.Fatalf("redistest: HELLO tells no version: %v", hello)
	return 0
}

// Info is what INFO tells of a field; "" if it tells nothing of it, or the server does not answer.
func (s *Server) Info(name string) string {
	info, _ := s.Do("INFO", "everything")
	return field(info, name)
}

// Calls is how often commands were called, by clients and by scripts, as INFO tells it.
func (s *Server) Calls(commands ...string) (sum int64) {
	s.t.Helper()
	info := s.Must("INFO", "commandstats")
	for _, c := range commands {
		var n int64
		fmt.Sscanf(field(info, "cmdstat_"+c), "calls=%d,", &n)
		sum += n
	}
	return sum
}

func field(info any, name string) string {
	_, value, _ := strings.Cut(fmt.Sprint("\n", info), "\n"+name+":")
	value, _, _ = strings.Cut(value, "\r")
	return value
}

func send(w io.Writer, args ...string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// reply reads one RESP2 reply.
func reply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return nil, errors.New("redistest: an empty line where a reply should begin")
	}
	rest := line[1:]
	switch line[0] {
	case '+':
		return rest, nil
	case '-':
		return nil, Error(rest)
	case ':':
		return strconv.ParseInt(rest, 10, 64)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return nil, err
		}
		data := make([]byte, n+2)
		if _, err := io.ReadFull(r, data); err != nil {
			return nil, err
		}
		return string(data[:n]), nil
	case '*':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return nil, err
		}
		all := make([]any, n)
		for i := range all {
			v, err := reply(r)
			var e Error
			switch {
			case errors.As(err, &e):
				v = e
			case err != nil:
				return nil, err
			}
			all[i] = v
		}
		return all, nil
	}
	return nil, fmt.Errorf("redistest: a reply of an unknown type: %q", line)
}
