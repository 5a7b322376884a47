package mortise

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/backend/memory"
)

// An owner in a delegation comes from another service: it forges no line of a log.
func TestAForeignOwnerForgesNoLine(t *testing.T) {
	c := on(t, memory.New())
	for _, owner := range []string{"a\nlevel=ERROR msg=forged:1", "a\x1b[2J:1"} {
		_, err := c.WithDelegations(context.Background(), Delegation{Name: "n", Owner: owner, Hold: 1})
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%q was accepted: %v", owner, err)
		}
	}
	ctx, err := c.WithDelegations(context.Background(), Delegation{Name: "n",
		Owner: "web \"1\" holds\u2028it:1", Hold: 1})
	must(t, err)
	_, err = c.TryLock(ctx, "n")
	if !errors.Is(err, ErrDelegationEnded) || !strings.Contains(err.Error(), `"web \"1\" holds\u2028it:1"`) {
		t.Errorf("the owner is not quoted: %v", err)
	}
	if _, err := New(memory.New(), WithID("a\nb")); !errors.Is(err, ErrInvalid) {
		t.Errorf("WithID with a new line: %v", err)
	}
}
