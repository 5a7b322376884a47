package redisproto

import (
	"testing"

	"github.com/mortise-go/mortise/internal/redistest/check"
)

func TestRedirectionsLeadToAddressesThatCanBeDialled(t *testing.T) {
	for _, c := range []struct {
		text, from, addr string
		ask, redirected  bool
	}{
		{"MOVED 3999 127.0.0.1:6381", "127.0.0.1:6380", "127.0.0.1:6381", false, true},
		{"ASK 3999 127.0.0.1:6381", "127.0.0.1:6380", "127.0.0.1:6381", true, true},
		{"MOVED 3999 ::1:6381", "[::1]:6380", "[::1]:6381", false, true},
		{"ASK 3999 2001:db8::7:6381", "[::1]:6380", "[2001:db8::7]:6381", true, true},
		{"MOVED 3999 [::1]:6381", "[::1]:6380", "[::1]:6381", false, true},
		{"MOVED 3999 node.example:6381", "", "node.example:6381", false, true},
		{"MOVED 3999 :6381", "10.0.0.7:6380", "10.0.0.7:6381", false, true},
		{"ASK 3999 :6381", "[::1]:6380", "[::1]:6381", true, true},
		{"MOVED 3999 :6381", "", ":6381", false, true},
		{"ERR no", "127.0.0.1:6380", "", false, false},
	} {
		addr, ask, redirected := Redirected(c.text, c.from)
		check.ErrorIf(t, addr != c.addr || ask != c.ask || redirected != c.redirected, "%q from %q: %q, %v, %v", c.text,
			c.from, addr, ask, redirected)
	}
}
