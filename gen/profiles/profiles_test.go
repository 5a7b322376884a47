package profiles

import (
	"os"
	"strings"
	"testing"
)

// valkey-go has rueidis' API under other names, and one profile is the other's copy: what
// is changed in one is to be changed in both.
// toValkey has rueidis' names be valkey-go's.
var toValkey = strings.NewReplacer("github.com/redis/rueidis", "github.com/valkey-io/valkey-go", "IsRedisErr", "IsValkeyErr",
	"NonRedisError", "NonValkeyError", "RedisResult", "ValkeyResult", "rueidis", "valkey")

func TestTheProfileOfValkeyIsThatOfRueidis(t *testing.T) {
	_, want, _ := strings.Cut(toValkey.Replace(read(t, "rueidis.tmpl")), "\n")
	_, got, _ := strings.Cut(read(t, "valkey.tmpl"), "\n") // the first line names versions
	if got != want {
		t.Errorf("valkey.tmpl is not rueidis.tmpl with other names; below its first line it would be:\n%s", want)
	}
}

// The same goes for what is written by hand, where the clients differ in names only.
func TestValkeyWaitsForReplicasAsRueidisDoes(t *testing.T) {
	want, err := os.ReadFile("../../rueidis/replicas.go")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../valkey/replicas.go")
	if err != nil {
		t.Fatal(err)
	}
	if want := toValkey.Replace(string(want)); string(got) != want {
		t.Errorf("valkey/replicas.go is not rueidis/replicas.go with other names; it would be:\n%s", want)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	src, err := FS.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(src)
}
