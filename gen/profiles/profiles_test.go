package profiles

import (
	"os"
	"testing"
)

// valkey-go has rueidis' API under other names, and one adapter is the other's copy: what is changed in one is to be
// changed in both.
func TestValkeyIsRueidisWithOtherNames(t *testing.T) {
	for _, file := range []string{"replicas.go"} {
		want, err := os.ReadFile("../../rueidis/" + file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile("../../valkey/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if want := ToValkey(string(want)); string(got) != want {
			t.Errorf("valkey/%s is not rueidis/%s with other names; it would be:\n%s", file, file, want)
		}
	}
}
