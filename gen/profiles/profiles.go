// Package profiles holds the client profiles that mortise-gen knows by name.
// docs/generation.md tells what a profile consists of.
package profiles

import (
	_ "embed"
	"strings"
)

var (
	//go:embed goredis.tmpl
	goredis string
	//go:embed rueidis.tmpl
	rueidis string
)

// Names are the profiles that there are.
var Names = []string{"goredis", "rueidis", "valkey"}

// toValkey gives the API of rueidis the names that it has in valkey-go, which began as a copy.
var toValkey = strings.NewReplacer("github.com/redis/rueidis", "github.com/valkey-io/valkey-go", "IsRedisErr", "IsValkeyErr",
	"NonRedisError", "NonValkeyError", "RedisResult", "ValkeyResult", "RedisMessage", "ValkeyMessage", "RedisError", "ValkeyError",
	"rueidis", "valkey")

// ToValkey is Go source for rueidis as source for valkey-go.
func ToValkey(src string) string { return toValkey.Replace(src) }

// Source is the profile of a name.
func Source(name string) (src []byte, known bool) {
	switch name {
	case "goredis":
		return []byte(goredis), true
	case "rueidis":
		return []byte(rueidis), true
	case "valkey":
		return []byte(ToValkey(rueidis)), true
	}
	return nil, false
}
