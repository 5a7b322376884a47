package etcd_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/etcd"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

func ExampleNew() {
	endpoints := os.Getenv("ETCD_ENDPOINTS") // "etcd-0.internal:2379,etcd-1.internal:2379,etcd-2.internal:2379"
	locks, err := mortise.New(etcd.New(clientv3.Config{Endpoints: strings.Split(endpoints, ",")}, "shop/locks/"))
	if err != nil {
		panic(err)
	}
	defer locks.Close()
	ctx := context.Background()
	lease, err := locks.Lock(ctx, "orders:42", mortise.Fenced())
	if err != nil {
		panic(err)
	}
	fmt.Println("holds", lease.Name(), "with a token:", lease.Token() > 0)
	if err := lease.Unlock(ctx); err != nil {
		panic(err)
	}
}

// The example of the documentation. It panics at an error.
func TestTheExampleRuns(t *testing.T) {
	check.Long(t)
	t.Setenv("ETCD_ENDPOINTS", server)
	ExampleNew()
}
