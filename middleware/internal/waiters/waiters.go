// Package waiters bounds how many requests of a middleware wait for locks, whatever the names.
package waiters

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/fail"
)

// The limits that a service has unless it sets others: a busy service does not come near them. InAll requests with
// Unit bytes each are 256 MiB.
const (
	PerName = 512
	InAll   = 4096
)

// Unit is how many bytes a waiting request may keep in memory to count as one.
const Unit = 64 << 10

// Limit bounds the requests that wait. A Limit may be used concurrently.
type Limit struct {
	most int64
	now  atomic.Int64
}

// shared is the limit of all middlewares of the process that do not set their own.
var shared = Limit{most: InAll}

// New returns a limit of most requests; zero means the limit that the process shares.
func New(most int) *Limit {
	if most == 0 {
		return &shared
	}
	return &Limit{most: int64(most)}
}

// Enter counts one request more, unless the limit is reached. A request that keeps more than Unit bytes counts as
// several, but as no more than the limit: such a request waits alone. After a true, leave has to be called.
func (l *Limit) Enter(bytes int) (leave func(), ok bool) {
	n := min(l.most, max(1, (int64(bytes)+Unit-1)/Unit))
	leave = func() { l.now.Add(-n) }
	if l.now.Add(n) > l.most {
		leave()
		return nil, false
	}
	return leave, true
}

// TryLock acquires the lock of a request that may not wait because of the limit.
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

// Crowded reports whether err is the refusal of a request because too many others wait.
func Crowded(err error) bool { return fail.IsCrowded(err) }
