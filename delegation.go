package mortise

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/internal/engine"
)

// Delegation lets a called service, in another process, enter a lock of its caller: a delegation
// names the hold of the call. [Delegations] makes delegations from a context,
// [Client.WithDelegations] puts them into a context. A Delegation is plain data: comparable, and in
// any encoding. By itself it proves nothing: the called service must know that the delegation
// comes, unaltered, from a service with the right to give it (see
// docs/explanation/threat-model.md).
//
// A delegation is good for as long as its hold is live and the innermost of its owner, and for
// nothing afterwards, however often it is sent.
type Delegation struct {
	// Name is the lock's name.
	Name string
	// Owner is the holder in the store, as in [LockInfo.Owner], without control characters.
	Owner string
	// Hold is the number of the owner's hold: the owner's hold count in the store while this hold is
	// the innermost. At least one.
	Hold int
	// Token is the fencing token of the caller's lease; zero without a token. A fenced lease under the
	// delegation has the same token: a larger token would make the caller's own writes stale.
	Token int64
	// Expires is the end of the caller's lease without further renewals, by the caller's clock: UTC,
	// whole milliseconds. For services that send delegations and bound their life; Lock ignores
	// Expires, since the store decides.
	Expires time.Time
}

// MaxDelegations is how many delegations a context gives and takes.
const MaxDelegations = engine.MaxDelegations

// Delegations returns delegations of the locks that ctx holds: of the live leases whose contexts
// ctx descends from, of any [Client], innermost first, one for each client and name, at most
// [MaxDelegations]. They are of the reentrant lock in all its kinds (plain, fenced, fair, polling,
// non-reentrant) and of LockAll's parts; not of read-write locks, permits and Quorum. Delegations
// that ctx carries by [Client.WithDelegations], with nothing locked under them, are included
// unchanged, until they expire: so a service may stand between. The result is empty if ctx holds
// nothing. It costs no command.
//
// The leases are marked as lent, for the rest of their lives: a re-entry, by this process or
// another, is then an owner of its own in the store, one at a time; and their releases are not
// handed over within the process.
func Delegations(ctx context.Context) []Delegation {
	inner := engine.Delegations(ctx)
	if len(inner) == 0 {
		return nil
	}
	delegations := make([]Delegation, len(inner))
	for i, x := range inner {
		delegations[i] = Delegation(x)
	}
	return delegations
}

// WithDelegations returns a context under which Lock and TryLock of this client, of its kinds, too,
// enter the locks of the delegations, under their holds, as if the caller's context had come here:
//
//   - One at a time enters under a hold, from any process; the others wait for their turn, and so does
//     the caller's own re-entry. TryLock then returns [ErrNotAcquired].
//   - The result is a lease of this client: renewed here, with its own time, released by its own Unlock.
//     The lock is free for others after the caller and all entered services have left. A caller that
//     unlocks, dies or loses its lease takes nothing from an entered service; nor the reverse. Loss of
//     the lock itself (its record is removed, the store is emptied) reaches each of them.
//   - If the hold has ended, they return [ErrDelegationEnded]. A [NonReentrant] lock returns [ErrInvalid].
//
// Names without a delegation are locked as with ctx. Of delegations of a name the first counts,
// also if ctx descends from a lease on the name already, since accepted delegations are innermost.
// WithDelegations trusts the delegations: see [Delegation].
//
// A delegation's token must be a token of an earlier lease of the name, else the delegation has
// ended.
//
// Errors wrap [ErrInvalid]: a malformed delegation, more than [MaxDelegations], or a backend
// without delegations. It costs no command; an entry costs one command, as Lock does, and Unlock
// one.
func (c *Client) WithDelegations(ctx context.Context, delegations ...Delegation) (context.Context, error) {
	inner := make([]engine.Delegation, len(delegations))
	for i, x := range delegations {
		inner[i] = engine.Delegation(x)
	}
	return c.inner().WithDelegations(ctx, inner)
}
