package httplock_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// lateTrailer is a body whose end is when its request's trailer is known, as where a reverse proxy
// copies it.
type lateTrailer struct {
	io.Reader
	atEnd func()
}

func (b lateTrailer) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		b.atEnd()
	}
	return n, err
}

func TestAnIncomingTrailerIsNotSentOn(t *testing.T) {
	got := make(chan http.Header, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		got <- r.Trailer
	}))
	defer srv.Close()
	client := &http.Client{Transport: httplock.NewTransport(nil, middle.Issuer(t, middle.Ring(t, "k1")), nil)}
	for _, known := range []string{"from the start", "at the body's end"} {
		trailer := http.Header{"Sum": nil, "mortise-DELEGATION": {"stolen"}}
		fill := func() {
			trailer["Sum"] = []string{"7"}
			trailer[delegation.Header] = []string{"stolen"}
		}
		if known == "from the start" {
			fill()
		}
		req := check.Value(http.NewRequest("POST", srv.URL, lateTrailer{strings.NewReader("{}"), fill})).In(t)
		req.Trailer = trailer
		resp := check.Value(client.Do(req)).In(t)
		resp.Body.Close()
		h := middle.Receive(t, "the trailer", got)
		check.ErrorIf(t, len(entries(h)) != 0 || h.Get("Sum") != "7",
			"known %s: the stranger has the trailer %v, want only Sum: 7", known, h)
		check.ErrorIf(t, len(entries(trailer)) != 2, "known %s: the caller's trailer was changed: %v", known, trailer)
	}
}

func TestAcceptRemovesItFromTheTrailerToo(t *testing.T) {
	locks := middle.InMemory(t, memory.New())
	checker := middle.Checker(t, middle.Ring(t, "k1"), "stock")
	srv := serveByHand(t, httplock.AcceptDelegations(locks, checker)(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		before := len(r.Trailer)
		_, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, before, " ", err, " ", r.Trailer)
	})))
	c := dial(t, srv)
	fmt.Fprint(c, strings.Replace(chunked, "\r\n\r\n", "\r\nTrailer: Sum, mortise-delegation\r\n\r\n", 1)+
		chunk(2)+"0\r\nSum: 7\r\nmortise-DELEGATION: stolen\r\n\r\n")
	status, body := answerOf(t, c)
	check.ErrorIf(t, status != 200 || body != "1 <nil> map[Sum:[7]]", "%d, before and after the body: %s", status, body)
}

// The server reads a body that is closed early to its end, and fills in the trailer.
func TestAcceptRemovesItFromTheTrailerOfABodyThatIsClosed(t *testing.T) {
	locks := middle.InMemory(t, memory.New())
	checker := middle.Checker(t, middle.Ring(t, "k1"), "stock")
	srv := serveByHand(t, httplock.AcceptDelegations(locks, checker)(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		err := r.Body.Close()
		fmt.Fprint(w, err, " ", r.Trailer)
	})))
	c := dial(t, srv)
	fmt.Fprint(c, strings.Replace(chunked, "\r\n\r\n", "\r\nTrailer: Sum\r\n\r\n", 1)+
		chunk(2)+"0\r\nSum: 7\r\nMortise-Delegation: stolen\r\n\r\n")
	status, body := answerOf(t, c)
	check.ErrorIf(t, status != 200 || body != "<nil> map[Sum:[7]]", "%d, after Close: %s", status, body)
}
