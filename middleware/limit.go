package middleware

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/fail"
)

const (
	// DefaultLimit is the limit that a process shares: a busy service does not come near it. DefaultLimit requests of
	// WaiterBytes each are 256 MiB.
	DefaultLimit = 4096
	// WaiterBytes is how many bytes a waiting request may keep in memory to count as one.
	WaiterBytes = 64 << 10
)

// Limit bounds the requests that wait, whatever the names of their locks. A Limit may be used concurrently.
type Limit struct {
	most int64
	now  atomic.Int64
}

// shared is the limit of all middlewares of the process that do not set their own.
var shared = Limit{most: DefaultLimit}

// NewLimit returns a limit of most requests; zero means the limit of DefaultLimit requests that
// all middlewares of the process share which set none of their own.
func NewLimit(most int) *Limit {
	if most == 0 {
		return &shared
	}
	return &Limit{most: int64(most)}
}

// Enter counts one request more, unless the limit is reached. bytes is what the request keeps in memory while it waits:
// one that keeps more than WaiterBytes counts as several, but as no more than the limit, so that it may wait alone.
// After a true, leave has to be called, once.
func (l *Limit) Enter(bytes int) (leave func(), ok bool) {
	n := min(l.most, max(1, (int64(bytes)+WaiterBytes-1)/WaiterBytes))
	leave = func() { l.now.Add(-n) }
	if l.now.Add(n) > l.most {
		leave()
		return nil, false
	}
	return leave, true
}

// TryLock acquires the lock of a request that may not wait because of the limit, or is refused at once: its error is
// ErrNotAcquired then, and IsCrowded is true of it.
func (l *Limit) TryLock(
	ctx context.Context, locks mortise.Locker, name string, opts ...mortise.Option,
) (*mortise.Lease, error) {
	lease, err := locks.TryLock(ctx, name, opts...)
	if errors.Is(err, mortise.ErrNotAcquired) {
		err = fmt.Errorf("%w; %w", fail.Crowdedf("%d requests wait for locks already, and this one does not: "+
			"find out why so many wait, or raise WithMaxWaiters", l.most), err)
	}
	return lease, err
}

// IsCrowded reports whether err is the refusal of a request because too many others wait.
func IsCrowded(err error) bool { return fail.IsCrowded(err) }
