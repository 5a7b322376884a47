//go:build linux

package chaos

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
)

// The client libraries, as users set them up, with timeouts of the lease's size.
const (
	goRedis     = "go-redis"
	rueidisName = "rueidis"

	commandTimeout = time.Second
	masterSet      = "chaos"
)

// dial connects to the wire that stands before a server.
func (c workerConfig) dial(ctx context.Context, d *net.Dialer, addr string) (net.Conn, error) {
	if to, ok := c.Wires[addr]; ok {
		addr = to
	}
	return d.DialContext(ctx, "tcp", addr)
}

// universal is a go-redis client for the servers that the worker was told.
func (c workerConfig) universal() goredis.UniversalClient {
	dialer := func(ctx context.Context, _, addr string) (net.Conn, error) {
		return c.dial(ctx, &net.Dialer{Timeout: commandTimeout}, addr)
	}
	switch c.Site {
	case sentinels:
		return goredis.NewFailoverClient(&goredis.FailoverOptions{
			MasterName: masterSet, SentinelAddrs: c.Addrs, Dialer: dialer,
			ReadTimeout: commandTimeout, WriteTimeout: commandTimeout, DialTimeout: commandTimeout,
		})
	case cluster:
		return goredis.NewClusterClient(&goredis.ClusterOptions{
			Addrs: c.Addrs, Dialer: dialer,
			ReadTimeout: commandTimeout, WriteTimeout: commandTimeout, DialTimeout: commandTimeout,
		})
	}
	return goredis.NewClient(&goredis.Options{
		Addr: c.Addrs[0], Dialer: dialer,
		ReadTimeout: commandTimeout, WriteTimeout: commandTimeout, DialTimeout: commandTimeout,
	})
}

// backend is what mortise stands on, and how to close what is below it.
func (c workerConfig) backend() (backend.Backend, func(), error) {
	switch c.Client {
	case goRedis:
		rdb := c.universal()
		return redisgo.New(rdb), func() { rdb.Close() }, nil
	case rueidisName:
		option := rueidisclient.ClientOption{
			InitAddress:      c.Addrs,
			ConnWriteTimeout: commandTimeout,
			DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return c.dial(ctx, d, addr)
			},
		}
		option.Dialer.Timeout = commandTimeout
		option.Dialer.KeepAlive = commandTimeout / 4
		if c.Site == sentinels {
			option.Sentinel = rueidisclient.SentinelOption{MasterSet: masterSet}
		}
		return rueidis.New(option), func() {}, nil
	}
	return nil, nil, fmt.Errorf("no client %q", c.Client)
}
