package examples

import (
	"context"
	"crypto/tls"
	"net"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	redis "github.com/redis/rueidis"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
)

var (
	user, password string
	tlsConfig      *tls.Config
)

func redisgoOneServer() backend.Backend {
	return redisgo.New(goredis.NewClient(&goredis.Options{
		Addr: "localhost:6379", Username: user, Password: password, TLSConfig: tlsConfig,
	}))
}

func redisgoUnixSocket() backend.Backend {
	return redisgo.New(goredis.NewClient(&goredis.Options{Network: "unix", Addr: "/run/redis/redis-server.sock"}))
}

func redisgoSentinel() backend.Backend {
	return redisgo.New(goredis.NewFailoverClient(&goredis.FailoverOptions{
		MasterName:    "mymaster",
		SentinelAddrs: []string{"s1:26379", "s2:26379", "s3:26379"}, // the sentinels' addresses
		Username:      user, Password: password, TLSConfig: tlsConfig,
	}))
}

func redisgoCluster() backend.Backend {
	return redisgo.New(goredis.NewClusterClient(&goredis.ClusterOptions{
		Addrs:    []string{"n1:6379", "n2:6379", "n3:6379"}, // some of its nodes
		Username: user, Password: password, TLSConfig: tlsConfig,
	}))
}

// The client finds out whether the address is of a server or of a cluster's node.
func rueidisServerOrCluster() backend.Backend {
	return rueidis.New(redis.ClientOption{
		InitAddress: []string{"n1:6379"}, Username: user, Password: password, TLSConfig: tlsConfig,
	})
}

func rueidisUnixSocket() backend.Backend {
	return rueidis.New(redis.ClientOption{
		InitAddress: []string{"/run/redis/redis-server.sock"},
		DialCtxFn: func(ctx context.Context, path string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		},
	})
}

func rueidisSentinel() backend.Backend {
	return rueidis.New(redis.ClientOption{
		InitAddress: []string{"s1:26379", "s2:26379", "s3:26379"}, // the sentinels' addresses
		Sentinel:    redis.SentinelOption{MasterSet: "mymaster"},
		Username:    user, Password: password, TLSConfig: tlsConfig,
	})
}

// The servers are not there: test/deploy has tests with servers of each kind.
func TestConfigurationsOfDocsMakeClients(t *testing.T) {
	for name, configure := range map[string]func() backend.Backend{
		"go-redis": redisgoOneServer, "go-redis, unix": redisgoUnixSocket, "go-redis, Sentinel": redisgoSentinel,
		"go-redis, cluster": redisgoCluster, "rueidis": rueidisServerOrCluster, "rueidis, unix": rueidisUnixSocket,
		"rueidis, Sentinel": rueidisSentinel,
	} {
		locks, err := mortise.New(configure())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := locks.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
