package mortise

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/internal/engine"
)

// Delegation lets a called service, in another process, enter a lock that its caller holds: it says which hold the
// call comes from. [Delegations] makes delegations from a context, [Client.WithDelegations] puts them into one. A
// Delegation is plain data: comparable, and to be sent in any encoding. By itself it proves nothing: the called
// service must know that it comes, unaltered, from a service that may give it (see docs/explanation/threat-model.md).
//
// It confers something for as long as that hold is live and the innermost of its owner, and nothing afterwards,
// however often it is sent.
type Delegation struct {
	// Name is the lock's name.
	Name string
	// Owner is the holder as the store knows it, as in [LockInfo.Owner], without control characters.
	Owner string
	// Hold is which of the owner's holds it is: the owner's hold count in the store while that one is the
	// innermost. One or more.
	Hold int
	// Token is the fencing token of the caller's lease; zero where it has none. A fenced lease that is
	// entered under the delegation has the same token: a larger one would make the caller's own writes stale.
	Token int64
	// Expires is when the caller's lease ends if it is not renewed from now on, by its clock: UTC, whole
	// milliseconds. It is for services that send delegations and bound their life; Lock does not look at it, the
	// store knows better.
	Expires time.Time
}

// MaxDelegations is how many delegations a context gives and takes.
const MaxDelegations = engine.MaxDelegations

// Delegations returns delegations of the locks that ctx holds: of the live leases whose contexts ctx descends from,
// of any [Client], innermost first, one for each client and name, at most [MaxDelegations]. They are of the reentrant
// lock in all its kinds (plain, fenced, fair, polling, non-reentrant) and of LockAll's parts; not of read-write
// locks, permits and Quorum. Delegations that ctx carries by [Client.WithDelegations] and that nothing was locked
// under are among them, as they came, until they expire: so a service may stand between. It is empty where ctx holds
// nothing. It costs no command.
//
// It marks those leases as lent, for the rest of their lives: the lock is then entered again, by this process as
// by others, as an owner of its own in the store, one at a time; and their releases are not handed over within
// the process.
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

// WithDelegations returns a context under which Lock and TryLock of this client, of its kinds too, enter the locks
// that the delegations name, under the holds that they are about, as if the caller's context had come here:
//
//   - One at a time enters under a hold, of whatever process; the others wait for their turn, so does the caller
//     that wants to enter again itself. TryLock then returns [ErrNotAcquired].
//   - What is got is a lease of this client: renewed here, with a time of its own, released by its own Unlock. The
//     lock is free for others when all that entered and the caller itself have ended. A caller that unlocks, dies or
//     loses its lease takes nothing from a service that has entered; nor the reverse. Loss of the lock itself (its
//     record is removed, the store is emptied) reaches each of them.
//   - Where the hold has ended, they return [ErrDelegationEnded]. A [NonReentrant] lock returns [ErrInvalid].
//
// Names that no delegation is about are locked as with ctx. Of delegations of one name the first counts; where ctx
// descends from a lease on that name already, too, since what is accepted is innermost.
// It trusts the delegations: see [Delegation].
//
// A delegation's token must be one that a lease of that name has had, else the delegation has ended.
//
// Errors wrap [ErrInvalid]: a delegation that cannot be one, more than [MaxDelegations], or a backend that cannot do
// it. It costs no command; to enter costs one, as Lock does, and Unlock one.
func (c *Client) WithDelegations(ctx context.Context, delegations ...Delegation) (context.Context, error) {
	inner := make([]engine.Delegation, len(delegations))
	for i, x := range delegations {
		inner[i] = engine.Delegation(x)
	}
	return c.inner().WithDelegations(ctx, inner)
}
