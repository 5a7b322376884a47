package passport_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/passport"
)

// What a review in the attacker's place found.

func reviewRing(t *testing.T) *passport.Ring {
	t.Helper()
	ring, err := passport.NewRing(passport.Key{ID: "k", Secret: []byte("0123456789abcdef0123456789abcdefX")})
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func entryOf(names ...string) passport.Passport {
	now := time.Now()
	p := passport.Passport{Audience: "stock", Issued: now, Expires: now.Add(20 * time.Second)}
	for _, n := range names {
		p.Claims = append(p.Claims, mortise.Claim{Name: n, Owner: "a:1", Hold: 1})
	}
	return p
}

// One who looks at all claims and one who looks for a name's would see different ones.
func TestTwoClaimsOfOneNameAreRefused(t *testing.T) {
	_, err := entryOf("n", "m", "n").Sign(context.Background(), reviewRing(t))
	if !errors.Is(err, mortise.ErrInvalid) {
		t.Errorf("Sign: %v, want ErrInvalid", err)
	}
}

type refusing struct{ err error }

func (r refusing) Adopt(context.Context, ...mortise.Claim) (context.Context, error) {
	return nil, r.err
}

// An entry that is in order, and that cannot be adopted, is not counted as accepted.
func TestWhatCannotBeAdoptedIsToldAsRefused(t *testing.T) {
	ring := reviewRing(t)
	var seen []passport.CheckedEvent
	checker, err := passport.NewChecker(ring, "stock", passport.WithObserver(passport.Observer{Checked: func(e passport.CheckedEvent) { seen = append(seen, e) }}))
	if err != nil {
		t.Fatal(err)
	}
	entry, err := entryOf("n").Sign(context.Background(), ring)
	if err != nil {
		t.Fatal(err)
	}
	no := errors.New("no")
	if _, err := checker.Adopt(context.Background(), refusing{no}, entry); !errors.Is(err, no) {
		t.Errorf("Adopt: %v", err)
	}
	if len(seen) != 1 || !errors.Is(seen[0].Err, no) {
		t.Errorf("told: %+v", seen)
	}
}

// appending is a Verifier that uses the room behind the message, as append may.
type appending struct{ *passport.Ring }

func (v appending) Verify(ctx context.Context, key string, message, signature []byte) error {
	_ = append(message, "a suffix of some verifiers"...)
	return v.Ring.Verify(ctx, key, message, signature)
}

func TestAVerifierThatAppendsToTheMessageSpoilsNoSignature(t *testing.T) {
	ring := reviewRing(t)
	checker, err := passport.NewChecker(appending{ring}, "stock")
	if err != nil {
		t.Fatal(err)
	}
	entry, err := entryOf("n").Sign(context.Background(), ring)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checker.Check(context.Background(), entry); err != nil {
		t.Error(err)
	}
}
