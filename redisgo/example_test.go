package redisgo_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/redisgo"
)

// One server. The locks share the client with the rest of the program, and closing them leaves it open.
func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR")}) // "localhost:6379"
	defer rdb.Close()
	locks, err := mortise.New(redisgo.New(rdb))
	if err != nil {
		panic(err)
	}
	defer locks.Close()

	err = mortise.Do(context.Background(), locks, "orders:42", func(ctx context.Context) error {
		fmt.Println("one process at a time is here") // ctx ends if the lock is lost
		return nil
	})
	if err != nil {
		panic(err)
	}
}

// A cluster. Each name is on the master of its slot, and so is everything that belongs to its lock.
func ExampleNew_cluster() {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: strings.Split(os.Getenv("REDIS_CLUSTER"), ","), // "10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379"
	})
	defer rdb.Close()
	locks, err := mortise.New(redisgo.New(rdb))
	if err != nil {
		panic(err)
	}
	defer locks.Close()

	ctx := context.Background()
	lease, err := locks.LockAll(ctx, []string{"orders:42", "stock:7"}) // a command for each slot
	if err != nil {
		panic(err)
	}
	fmt.Println("holds both")
	if err := lease.Unlock(ctx); err != nil {
		panic(err)
	}
}

// Sentinel. A failover may lose a lock that no replica has: WithReplicas waits until one has it.
func ExampleNew_sentinel() {
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    os.Getenv("REDIS_MASTER"),                        // "mymaster"
		SentinelAddrs: strings.Split(os.Getenv("REDIS_SENTINELS"), ","), // "10.0.0.1:26379,10.0.0.2:26379"
	})
	defer rdb.Close()
	locks, err := mortise.New(redisgo.New(rdb))
	if err != nil {
		panic(err)
	}
	defer locks.Close()

	ctx := context.Background()
	lease, err := locks.Lock(ctx, "orders:42", mortise.WithReplicas(1, time.Second))
	if err != nil {
		panic(err)
	}
	fmt.Println("a replica has it")
	if err := lease.Unlock(ctx); err != nil {
		panic(err)
	}
}

// TLS, with a user, and an authority and a client's certificate from files.
func ExampleNew_tls() {
	pem, err := os.ReadFile(os.Getenv("REDIS_CA")) // "ca.crt"
	if err != nil {
		panic(err)
	}
	authority := x509.NewCertPool()
	authority.AppendCertsFromPEM(pem)
	client, err := tls.LoadX509KeyPair(os.Getenv("REDIS_CERT"), os.Getenv("REDIS_KEY")) // "client.crt", "client.key"
	if err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{
		Addr:      os.Getenv("REDIS_TLS_ADDR"), // "redis.internal:6380"
		Username:  "locks",                     // docs/reference/deployments.md has its permissions
		Password:  os.Getenv("REDIS_PASSWORD"),
		TLSConfig: &tls.Config{RootCAs: authority, Certificates: []tls.Certificate{client}, MinVersion: tls.VersionTLS12},
	})
	defer rdb.Close()
	locks, err := mortise.New(redisgo.New(rdb))
	if err != nil {
		panic(err)
	}
	defer locks.Close()

	lease, err := locks.TryLock(context.Background(), "orders:42")
	if err != nil {
		panic(err)
	}
	fmt.Println("holds", lease.Name())
	if err := lease.Unlock(context.Background()); err != nil {
		panic(err)
	}
}
