package check

import "testing"

// Long leaves a test that takes more than a quarter of a second out of the short tier, `make test`. `make verify` runs
// it.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("longer than a quarter of a second: not with -short")
	}
}
