package examples

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
)

// file is the storage of Kleppmann's article. check makes the storage refuse old tokens.
type file struct {
	check   bool
	highest int64
	content string
}

var errStale = errors.New("refused: a newer token has written")

func (f *file) write(content string, token int64) error {
	if f.check && token < f.highest {
		return errStale
	}
	f.highest, f.content = max(token, f.highest), content
	return nil
}

// twoWriters makes client 1 read, pause for a minute and write; client 2 locks and writes meanwhile. With look,
// client 1 checks its lease after the pause.
func twoWriters(ctx context.Context, one, two mortise.Locker, f *file, look bool) error {
	lease1, err := one.Lock(ctx, "file", mortise.WithLease(10*time.Second))
	if err != nil {
		return err
	}
	token1 := lease1.Token()

	time.Sleep(time.Minute) // a collector, a hypervisor, a debugger: client 1 stands still

	lease2, err := two.Lock(ctx, "file")
	if err != nil {
		return err
	}
	token2 := lease2.Token()
	if err := f.write("by client 2", token2); err != nil {
		return err
	}

	if look && lease1.Err() != nil { // no command; the lease compares the clocks itself
		return lease1.Err()
	}
	return f.write("by client 1, from old data", token1) // the late write
}

func TestKleppmannsCase(t *testing.T) {
	for _, c := range []struct {
		what    string
		check   bool
		look    bool
		want    error
		content string
	}{
		{"no fencing, no look: the newer data is overwritten", false, false, nil, "by client 1, from old data"},
		{"a look before the write", false, true, mortise.ErrLost, "by client 2"},
		{"a storage that checks tokens", true, false, errStale, "by client 2"},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New()
				var lockers [2]mortise.Locker
				for i := range lockers {
					client, err := mortise.New(store)
					if err != nil {
						t.Fatal(err)
					}
					defer client.Close()
					lockers[i] = client.With(mortise.Fenced())
				}
				f := &file{check: c.check}
				if err := twoWriters(t.Context(), lockers[0], lockers[1], f, c.look); !errors.Is(err, c.want) {
					t.Errorf("client 1: %v, want %v", err, c.want)
				}
				if f.content != c.content {
					t.Errorf("the file was written %q", f.content)
				}
			})
		})
	}
}
