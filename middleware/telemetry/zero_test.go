package telemetry_test

import (
	"errors"
	"testing"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware/telemetry"
)

func TestANilOptionIsInvalid(t *testing.T) {
	if _, err := telemetry.New(nil); !errors.Is(err, mortise.ErrInvalid) {
		t.Errorf("New: %v", err)
	}
	if _, err := telemetry.Delegations(nil); !errors.Is(err, mortise.ErrInvalid) {
		t.Errorf("Delegations: %v", err)
	}
}
