// Package rueidis lets mortise use github.com/redis/rueidis, with client-side caching: Redis tells
// the client about changes of a lock's record. So a TryLock of a lock known to be held is refused
// without a command, waiters wake also when a record expires or is deleted, and a holder learns at
// once of the deletion of its record, from half a second after the acquisition.
//
//	locks, err := mortise.New(rueidis.New(redis.ClientOption{InitAddress: []string{"localhost:6379"}}))
//
// where redis is github.com/redis/rueidis.
package rueidis

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto"
)

// New makes a backend with a rueidis client of its own, built at the first command and closed with
// the locks. While the server is unreachable, each command tries again to build the client;
// concurrent commands share an attempt, which takes Dialer.Timeout (5 s by default) at most.
//
// Of the options, New sets DisableRetry and, unless DisableCache is set, ClientTrackingOptions
// (OPTOUT NOLOOP) and PipelineMultiplex: commands with server-side tracking share a single
// connection for each server, because invalidations arrive there. Plain and fenced locks are
// taken and released over two more connections (or one, if PipelineMultiplex is -1), of a client
// without tracking, except on a cluster; while these connections are unavailable, over the tracking
// connection. OnInvalidations, if set, is called as well. If the server does not support RESP3 or
// tracking, at first or when it connects again, the client goes on as if DisableCache were set.
//
// A lock that another process releases may be refused by TryLock until the invalidation has arrived:
// for the time of a message, and a few milliseconds on a busy machine. If the tracking connection
// hangs, it is refused for 750 ms at most; then TryLock asks the server. A release by any client of
// this process is known at once. While TryLock is refused without commands, a PING is sent each 250
// ms; on a cluster TryLock asks again after 750 ms instead. Callers that are refused more than 25
// times in a millisecond are delayed by a millisecond in each ten, so that invalidations are read.
//
// These options are errors of mortise.New, because they break guarantees that locks need:
// ConnLifetime, which sends commands a second time; ClientTrackingOptions; and
// DisableAutoPipelining without DisableCache, which leaves no connection for invalidations.
//
// A goroutine that is often alone, 32 times in a second, gets a further connection for its own
// commands. There is no such connection on a cluster, with sentinels, with
// Standalone.EnableRedirect or AuthCredentialsFn, or with the client of NewWithClient.
//
// While a goroutine waits for a lock, and some 30 s longer, there is a further connection for
// subscriptions, or with sharded pub/sub a connection for each master of the cluster. It belongs to
// the client without tracking, which on a cluster is built for subscriptions only, and reads the
// cluster's slots every ShardsRefreshInterval, 10 s by default.
func New(opt rueidis.ClientOption, opts ...Option) backend.Backend {
	return redisproto.New(func() (redisproto.Adapter, error) {
		switch {
		case len(opt.InitAddress) == 0:
			return nil, errors.New("rueidis.New: ClientOption.InitAddress is empty")
		case opt.ConnLifetime > 0:
			return nil, errors.New("rueidis.New: ClientOption.ConnLifetime makes rueidis send commands a second " +
				"time: leave it zero")
		case len(opt.ClientTrackingOptions) > 0:
			return nil, errors.New("rueidis.New: ClientOption.ClientTrackingOptions is set by mortise: leave it empty")
		case opt.DisableAutoPipelining && !opt.DisableCache:
			return nil, errors.New("rueidis.New: ClientOption.DisableAutoPipelining needs DisableCache as well")
		}
		a, err := newAdapter(opts)
		if err != nil {
			return nil, err
		}
		opt := opt // a copy for each Open
		opt.DisableRetry = true
		plain := opt
		plain.DisableCache = true
		a.line = newLine(plain)
		if !opt.DisableCache {
			a.tracking.Store(true)
			a.most = redisproto.TrackedBatch
			opt.PipelineMultiplex = -1
			opt.ClientTrackingOptions = []string{"OPTOUT", "NOLOOP"}
			opt.OnInvalidations = func(messages []rueidis.RedisMessage) {
				if plain.OnInvalidations != nil {
					plain.OnInvalidations(messages)
				}
				a.invalidated(messages)
			}
			untold := plain
			untold.OnInvalidations = nil
			// Two connections (2 to the power of 1), so that two round trips can overlap; or one, if
			// the user asks for one.
			if untold.PipelineMultiplex >= 0 {
				untold.PipelineMultiplex = 1
			}
			a.plain = redisproto.NewLazy(func() (rueidis.Client, error) {
				opt := untold
				opt.ForceSingleClient = !a.cluster // plain is not used before this is known
				// On a cluster it has subscriptions only, which do not notice that slots have moved.
				opt.ClusterOption.ShardsRefreshInterval = cmp.Or(opt.ClusterOption.ShardsRefreshInterval, 10*time.Second)
				return newClient(opt)
			}, rueidis.Client.Close)
		}
		return a.over(func() (rueidis.Client, error) {
			if a.tracking.Load() {
				client, err := newClient(opt)
				if !refusesTracking(err) {
					return client, err
				}
				a.tracking.Store(false)
			}
			return newClient(plain)
		}, rueidis.Client.Close), nil
	})
}

// newClient makes a client, and asks a supposed cluster for its slots: before v1.0.77, rueidis takes a
// single server for a cluster if the connection breaks during its own check, and does not check again.
func newClient(opt rueidis.ClientOption) (rueidis.Client, error) {
	client, err := rueidis.NewClient(opt)
	if err != nil || client.Mode() != rueidis.ClientModeCluster {
		return client, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), settling)
	defer cancel()
	if _, err := ask(ctx, client, "CLUSTER", "SLOTS"); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

// settling bounds how long a cluster may take to answer newClient.
const settling = 5 * time.Second

// replyIn returns the text of an error reply that rueidis has made an error of its own; "" if err is another error.
func replyIn(err error) string {
	switch {
	case errors.Is(err, rueidis.ErrNoSlot): // the servers' answer, known before the command was sent
		return "CLUSTERDOWN " + err.Error()
	case errors.Is(err, rueidis.ErrNoCache) && strings.HasPrefix(err.Error(), "BUSY"): // the reply to CLIENT TRACKING
		return err.Error()
	}
	return ""
}

// refusesTracking reports whether err says that the server, as it is configured, does not track a connection.
func refusesTracking(err error) bool { return errors.Is(err, rueidis.ErrNoCache) && replyIn(err) == "" }

// ask sends a command without a key, on a cluster to several nodes at once: a node that hangs must not delay a client
// of the others.
func ask(ctx context.Context, client rueidis.Client, args ...string) (rueidis.RedisMessage, error) {
	nodes := slices.Collect(maps.Values(nodesOf(client))) // in a random order
	nodes = nodes[:min(len(nodes), 4)]
	return redisproto.First(ctx, nodes, func(ctx context.Context, node rueidis.Client) (rueidis.RedisMessage, error) {
		return node.Do(ctx, node.B().Arbitrary(args...).Build()).ToMessage()
	})
}

// AskEach implements [redisproto.Asker].
func (a *adapter) AskEach(ctx context.Context, args ...string) ([]redisproto.Answer, error) {
	client, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	return redisproto.Each(ctx, nodesOf(client), question(args)), nil
}

// Ask implements [redisproto.Asker].
func (a *adapter) Ask(ctx context.Context, node string, args ...string) (any, error) {
	client, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	return redisproto.At(ctx, nodesOf(client), node, question(args))
}

// question returns the function that sends a command to a node.
func question(args []string) func(context.Context, rueidis.Client) (any, error) {
	return func(ctx context.Context, node rueidis.Client) (any, error) {
		return node.Do(ctx, node.B().Arbitrary(args...).Build()).ToAny()
	}
}

// nodesOf returns the nodes of a cluster by their addresses; of a single server "".
func nodesOf(client rueidis.Client) map[string]rueidis.Client {
	if all := client.Nodes(); client.Mode() == rueidis.ClientModeCluster && len(all) > 0 {
		return all
	}
	return map[string]rueidis.Client{"": client}
}

// NewWithClient makes a backend of an existing client. The client stays open when the locks are
// closed, and there is no client-side caching: a client's handling of invalidations is fixed when
// the client is built. A client built with ConnLifetime may send commands a second time, with
// misleading replies; do not pass such a client.
func NewWithClient(client rueidis.Client, opts ...Option) backend.Backend {
	return redisproto.New(func() (redisproto.Adapter, error) {
		if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, errors.New("rueidis.NewWithClient: the client is nil: pass what rueidis.NewClient " +
				"returned without an error")
		}
		a, err := newAdapter(opts)
		if err != nil {
			return nil, err
		}
		return a.over(func() (rueidis.Client, error) { return client, nil }, func(rueidis.Client) {}), nil
	})
}

func newAdapter(opts []Option) (*adapter, error) {
	a := &adapter{commands: newCommands(), beside: newCommands()}
	a.alone = commands{connect: a.connectLone, way: a.sendAlone}
	a.beside.connect = a.connectPlain
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("rueidis: a nil Option; omit it")
		}
		opt(&a.options)
	}
	return a, nil
}

// Option changes what [New] and [NewWithClient] make.
type Option func(*options)

type options struct{ sharded redisproto.ShardedPubSub }

// WithShardedPubSub sets how releases are announced on a cluster; the default is [ShardedAuto]. All
// clients with shared locks must agree: see [redisproto.ShardedPubSub].
func WithShardedPubSub(mode redisproto.ShardedPubSub) Option {
	return func(o *options) { o.sharded = mode }
}

// The values of [WithShardedPubSub].
const (
	ShardedAuto = redisproto.ShardedAuto
	ShardedOn   = redisproto.ShardedOn
	ShardedOff  = redisproto.ShardedOff
)
