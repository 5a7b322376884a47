package mortise

import (
	"context"
	"iter"

	"github.com/mortise-go/mortise/backend"
)

// Locks lists the locks that are held, or reserved, and whose names begin with prefix; of semaphores those
// with permits in use. An empty prefix lists all; a client's own prefix ([WithPrefix]) comes before it, as
// before a name. A [LockInfo] is as from [Client.Inspect], without the Queue. Latches and free semaphores
// have no holder, and are not listed.
//
//	for info, err := range locks.Locks(ctx, "orders:") {
//		if err != nil {
//			return err
//		}
//		fmt.Println(info.Name, info.Kind, info.Owner)
//	}
//
// It is for operators and tools. The list is read page by page while the loop runs: a lock that is held
// from the beginning to the end is listed, in any order, perhaps twice; others may be. The memory needed is
// that of a page, whatever the number of locks. After an error, which is listed last, begin again: errors
// are those of Inspect, and [ErrInvalid] if the backend cannot list.
//
// Cost on Redis: SCAN twice over all keys of each server, a command for each 1,000 keys, and a command for
// each hash, and each semaphore in use, whose name has the prefix. A hash of other data is left out: each
// field of a lock's is an owner with a count. The Redis user needs SCAN: see docs/reference/deployments.md.
// Elsewhere a page is one request for some hundred locks.
func (c *Client) Locks(ctx context.Context, prefix string) iter.Seq2[LockInfo, error] {
	return func(yield func(LockInfo, error) bool) {
		e := c.inner()
		r := backend.ListRequest{Prefix: prefix}
		if e != nil {
			r.Prefix = e.Config.Prefix + prefix
		}
		for {
			page, err := e.List(ctx, r)
			if err != nil {
				yield(LockInfo{}, err)
				return
			}
			for _, x := range page.Locks {
				if !yield(c.described(x.Name, x.Description), nil) {
					return
				}
			}
			if r.Cursor = page.Next; r.Cursor == "" {
				return
			}
		}
	}
}
