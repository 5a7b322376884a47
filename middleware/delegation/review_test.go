package delegation_test

import (
	"context"
	"errors"
	"testing"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/delegation"
)

// What a review in the attacker's place found.

// A reader of all delegations and a reader of one name's delegations would see different ones.
func TestTwoDelegationsOfOneNameAreRefused(t *testing.T) {
	p := valid()
	p.Delegations = append(p.Delegations, p.Delegations[0])
	_, err := p.Sign(ctx, ring(t, "k1"))
	check.ErrorIf(t, !errors.Is(err, mortise.ErrInvalid), "Sign: %v, want ErrInvalid", err)
}

// An entry that is in order, and that cannot be accepted, is not counted as accepted.
func TestWhatCannotBeAcceptedIsToldAsRefused(t *testing.T) {
	r := ring(t, "k1")
	var seen []delegation.CheckedEvent
	c := middle.Checker(
		t, r, "stock", delegation.WithObserver(delegation.Observer{Checked: func(e delegation.CheckedEvent) {
			seen = append(seen, e)
		}}))
	_, err := c.Accept(ctx, new(mortise.Client), sign(t, valid(), r))
	check.ErrorIf(t, !errors.Is(err, mortise.ErrInvalid), "Accept: %v", err)
	check.ErrorIf(t, len(seen) != 1 || !errors.Is(seen[0].Err, mortise.ErrInvalid), "told: %+v", seen)
}

// appending is a Verifier that uses the room behind the message, as append may.
type appending struct{ *delegation.Ring }

func (v appending) Verify(ctx context.Context, key string, message, signature []byte) error {
	_ = append(message, "a suffix of some verifiers"...)
	return v.Ring.Verify(ctx, key, message, signature)
}

func TestAVerifierThatAppendsToTheMessageSpoilsNoSignature(t *testing.T) {
	r := ring(t, "k1")
	check.Done(t, check.Err(middle.Checker(t, appending{r}, "stock").Check(ctx, sign(t, valid(), r))))
}
