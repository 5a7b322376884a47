//go:build linux || darwin

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortise-go/mortise/backend/cas"
)

const (
	// glance is how often a session that listens looks whether its socket is still there.
	glance = 250 * time.Millisecond
	// full is how long a sender waits for a session whose socket is full.
	full = 5 * time.Millisecond
)

// socket returns the path of a session's socket. A datagram has a stamp in ms, a space, and a notice.
func (d *driver) socket(session string) string { return d.path + ".to-" + session }

var errSocket = errors.New("the socket for notices, or its folder, was removed")

// Listen implements [cas.Driver].
func (d *driver) Listen(ctx context.Context, session string, hear func(cas.Heard)) error {
	at := d.socket(session)
	_ = os.Remove(at)
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at, Net: "unixgram"})
	if err != nil {
		return unsent(err)
	}
	defer os.Remove(at)
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	mine, err := os.Lstat(at)
	if err != nil {
		return unsent(errSocket)
	}
	hear(cas.Heard{})
	for b := make([]byte, 8<<10); ; {
		_ = c.SetReadDeadline(time.Now().Add(glance))
		n, err := c.Read(b)
		switch now, gone := os.Lstat(at); {
		case err == nil:
			stamp, text, _ := strings.Cut(string(b[:n]), " ")
			if ms, _ := strconv.ParseInt(stamp, 10, 64); text != "" {
				hear(cas.Heard{Text: text, Stamp: millis(ms)})
			}
		case ctx.Err() != nil:
			return unsent(ctx.Err())
		case gone != nil || !os.SameFile(now, mine):
			return unsent(errSocket)
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return unsent(err)
		}
	}
}

// notify sends the notices of the swaps that are done.
func (d *driver) notify(in []cas.Swap, out []cas.Swapped) {
	for i := range in {
		for _, n := range in[i].Notices {
			if out[i].Done {
				d.send(n.Session, fmt.Sprintf("%d %s", out[i].Now.Milliseconds(), n.Text))
			}
		}
	}
}

// send sends a text to a session. The text is lost if the session's socket stays full.
func (d *driver) send(session, text string) {
	at := d.socket(session)
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: at, Net: "unixgram"})
	if errors.Is(err, unix.ECONNREFUSED) { // its process has ended
		_ = os.Remove(at)
	}
	if err == nil {
		_ = c.SetWriteDeadline(time.Now().Add(full))
		_, _ = c.Write([]byte(text))
		_ = c.Close()
	}
}
