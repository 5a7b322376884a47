package mortise_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
)

// An owner in a delegation comes from another service: it forges no line of a log.
func TestAForeignOwnerForgesNoLine(t *testing.T) {
	c, err := mortise.New(memory.New())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, owner := range []string{"a\nlevel=ERROR msg=forged:1", "a\x1b[2J:1"} {
		_, err := c.WithDelegations(context.Background(), mortise.Delegation{Name: "n", Owner: owner, Hold: 1})
		if !errors.Is(err, mortise.ErrInvalid) {
			t.Errorf("%q was accepted: %v", owner, err)
		}
	}
	ctx, err := c.WithDelegations(context.Background(), mortise.Delegation{Name: "n",
		Owner: "web \"1\" holds\u2028it:1", Hold: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.TryLock(ctx, "n")
	if !errors.Is(err, mortise.ErrDelegationEnded) || !strings.Contains(err.Error(), `"web \"1\" holds\u2028it:1"`) {
		t.Errorf("the owner is not quoted: %v", err)
	}
	if _, err := mortise.New(memory.New(), mortise.WithID("a\nb")); !errors.Is(err, mortise.ErrInvalid) {
		t.Errorf("WithID with a new line: %v", err)
	}
}
