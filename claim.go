package mortise

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mortise-go/mortise/backend"
)

// Claim says which hold of a lock a call comes from, so that the one who is called, in another
// process, can enter the lock under it. [ClaimsOf] makes claims from a context, [Client.Adopt] puts them
// into one. A Claim is plain data: comparable, and to be sent in any encoding. By itself it
// proves nothing: who adopts one must know that it comes from somebody who may give it, unaltered (see
// docs/threat-model.md).
//
// It confers something for as long as that hold is live and the innermost of its owner, and nothing afterwards,
// whoever sends it how often.
type Claim struct {
	// Name is the lock's name.
	Name string
	// Owner is the holder as the store knows it, as in [State.Owner], without control characters.
	Owner string
	// Hold is which of the owner's holds it is: the owner's hold count in the store while that one is the
	// innermost. One or more.
	Hold int
	// Token is the fencing token of the caller's lease; zero where it has none. A fenced lease that is
	// entered under the claim has the same token: a larger one would make the caller's own writes stale.
	Token int64
	// Expires is when the caller's lease ends if it is not renewed from now on, by its clock: UTC, whole
	// milliseconds. It is for those who send claims and want to bound their life; Lock does not look at it, the store
	// knows better.
	Expires time.Time
}

// MaxClaims is how many claims a context gives and takes.
const MaxClaims = 16

// ErrClaimEnded is wrapped by the error of a Lock or TryLock under a claim ([Client.Adopt]) whose hold has
// ended: it was unlocked or lost, or its time was over. Nothing was locked. To compete for the
// lock like anybody, lock it with a context without the claim.
var ErrClaimEnded = errors.New("the claim has ended")

// ClaimsOf returns claims on the locks that ctx holds: of the live leases whose contexts ctx descends from, of any
// [Client], innermost first, one for each client and name, at most [MaxClaims]. They are of the
// reentrant lock in all its kinds (plain, fenced, fair, spinning, non-reentrant) and of LockAll's parts; not of
// read-write locks, permits and Red. Claims that ctx carries by [Client.Adopt] and that nothing was locked under are among them, as they came, until they expire:
// so a service may stand between. It is empty where ctx holds nothing. It costs no command.
//
// It marks those leases as lent, for the rest of their lives: the lock is then entered again, by this process as by others, as an owner of
// its own in the store, one at a time; and their releases are not handed over within the process.
func ClaimsOf(ctx context.Context) []Claim {
	return claimsOf(ctx)
}

// Adopt returns a context under which Lock and TryLock of this client, of its kinds too, enter the locks that the claims
// name, under the holds that they are about, as if the caller's context had come here:
//
//   - One at a time enters under a hold, of whatever process; the others wait for their turn, so does the caller
//     that wants to enter again itself. TryLock then returns [ErrNotAcquired].
//   - What is got is a lease of this client: renewed here, with a time of its own, released by its own Unlock. The lock is free for
//     others when all who entered and the caller itself have ended. A caller that unlocks, dies or loses its lease takes
//     nothing from one who has entered; nor the reverse. Loss of the lock itself (its record is removed,
//     the store is emptied) reaches each of them.
//   - Where the hold has ended, they return [ErrClaimEnded]. Kind{NonReentrant} returns [ErrInvalid].
//
// Names that no claim is about are locked as with ctx. Of claims of one name the first counts; where ctx descends from
// a lease on that name already, too, since what is adopted is innermost.
// It trusts the claims: see [Claim].
//
// A claim's token must be one that a lease of that name has had, else the claim has ended.
//
// Errors wrap [ErrInvalid]: a claim that cannot be one, more than [MaxClaims], or a backend that cannot do it. It costs no
// command; to enter costs one, as Lock does, and Unlock one.
func (c *Client) Adopt(ctx context.Context, claims ...Claim) (context.Context, error) {
	fail := func(name string, err error) (context.Context, error) {
		return nil, &Error{Op: "adopt", Name: name, Err: err}
	}
	if err := c.usable(); err != nil {
		return fail("", err)
	}
	if ctx == nil {
		return fail("", fmt.Errorf("%w: the context is nil; use context.Background()", ErrInvalid))
	}
	if len(claims) > MaxClaims {
		return fail("", fmt.Errorf("%w: %d claims, the limit is %d", ErrInvalid, len(claims), MaxClaims))
	}
	for _, x := range claims {
		if err := x.check(); err != nil {
			return fail(x.Name, err)
		}
	}
	if !c.nests() {
		return fail("", fmt.Errorf("%w: on the backend (%T) a lock that another process holds cannot be entered; on those of redisgo, rueidis and memory it can", ErrInvalid, c.session))
	}
	if len(claims) == 0 {
		return ctx, nil
	}
	return &claimContext{Context: ctx, client: c, claims: append([]Claim(nil), claims...)}, nil
}

// mostOwner bounds an owner's id: a client's, a colon and a number.
const mostOwner = maxID + 1 + 20

func (x Claim) check() error {
	if err := checkName(x.Name); err != nil {
		return fmt.Errorf("%w: a claim's name: %w", ErrInvalid, err)
	}
	switch {
	case len(x.Owner) > mostOwner, !utf8.ValidString(x.Owner), strings.ContainsFunc(x.Owner, unicode.IsControl), strings.IndexByte(x.Owner, ':') < 0:
		return fmt.Errorf("%w: a claim's owner, %q, is none", ErrInvalid, shorten(x.Owner))
	case x.Hold < 1:
		return fmt.Errorf("%w: a claim's hold is %d, it is one or more", ErrInvalid, x.Hold)
	case x.Token < 0:
		return fmt.Errorf("%w: a claim's token is %d", ErrInvalid, x.Token)
	}
	return nil
}

// claimContext carries claims that a client has adopted.
type claimContext struct {
	context.Context
	client *Client
	claims []Claim
}

func (x *claimContext) Value(key any) any {
	switch k := key.(type) {
	case *holdKey:
		if k.client == x.client && k.topic.Kind == backend.KindLock {
			for i := range x.claims {
				if x.claims[i].Name == k.topic.Name {
					return &x.claims[i]
				}
			}
		}
	case claimsKey:
		return x
	}
	return x.Context.Value(key)
}

// String keeps what prints contexts from printing claims.
func (x *claimContext) String() string { return fmt.Sprintf("%v.WithClaims", x.Context) }

// claimsKey asks a context for the innermost of those that give claims: a *leaseContext, a
// *claimContext, or joined ones.
type claimsKey struct{}

func claimsOf(ctx context.Context) []Claim {
	if ctx == nil {
		return nil
	}
	g := gathering{seen: make(map[holdKey]bool)}
	g.from(ctx)
	return g.claims
}

// gathering collects claims.
type gathering struct {
	claims []Claim
	seen   map[holdKey]bool
}

// from collects those of ctx, innermost first.
func (g *gathering) from(ctx context.Context) {
	for len(g.claims) < MaxClaims {
		switch x := ctx.Value(claimsKey{}).(type) {
		case *leaseContext:
			g.hold(x)
			ctx = x.Context
		case *claimContext:
			for _, claim := range x.claims {
				key := holdKey{x.client, lockTopic(claim.Name)}
				if len(g.claims) < MaxClaims && !g.seen[key] && time.Now().Before(claim.Expires) {
					g.claims = append(g.claims, claim)
				}
				g.seen[key] = true
			}
			ctx = x.Context
		case joined:
			g.from(x.Context)
			ctx = x.other
		default:
			return
		}
	}
}

// hold collects that of a lease, if it is live.
func (g *gathering) hold(x *leaseContext) {
	if g.seen[x.key] || x.key.topic.Kind != backend.KindLock {
		return
	}
	g.seen[x.key] = true
	if claim, ok := x.hold.lend(); ok {
		g.claims = append(g.claims, claim)
	}
}
