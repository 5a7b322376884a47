//go:build unix

package redistest

import (
	"path/filepath"
	"strings"
	"testing"
)

// Environment starts the servers of the adapters' examples: one, also by TLS with a user, a cluster, and a master with
// a replica and sentinels. It sets the environment variables that the examples read.
func Environment(t *testing.T) {
	t.Helper()
	x := NewTLS(t)
	one := Start(t, WithTLS(x), WithACL("locks on >secret ~* &* +@all"))
	sentinels := StartSentinels(t, 1)
	for name, value := range map[string]string{
		"REDIS_ADDR":      one.Addr(),
		"REDIS_TLS_ADDR":  one.TLSAddr(),
		"REDIS_PASSWORD":  "secret",
		"REDIS_CA":        filepath.Join(x.Dir(), "ca.crt"),
		"REDIS_CERT":      filepath.Join(x.Dir(), "client.crt"),
		"REDIS_KEY":       filepath.Join(x.Dir(), "client.key"),
		"REDIS_CLUSTER":   strings.Join(StartCluster(t, 3).Addrs(), ","),
		"REDIS_SENTINELS": strings.Join(sentinels.Addrs(), ","),
		"REDIS_MASTER":    MasterSet,
	} {
		t.Setenv(name, value)
	}
}
