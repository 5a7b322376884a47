package profiles

import (
	"strings"
	"testing"
)

// valkey-go has rueidis' API under other names, and one profile is the other's copy: what
// is changed in one is to be changed in both.
func TestTheProfileOfValkeyIsThatOfRueidis(t *testing.T) {
	names := strings.NewReplacer("github.com/redis/rueidis", "github.com/valkey-io/valkey-go", "IsRedisErr", "IsValkeyErr", "RedisResult", "ValkeyResult", "rueidis", "valkey")
	_, want, _ := strings.Cut(names.Replace(read(t, "rueidis.tmpl")), "\n")
	_, got, _ := strings.Cut(read(t, "valkey.tmpl"), "\n") // the first line names versions
	if got != want {
		t.Errorf("valkey.tmpl is not rueidis.tmpl with other names; below its first line it would be:\n%s", want)
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
