package valkey

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/valkey-io/valkey-go"

	"github.com/mortise-go/mortise/backend/redisproto"
)

type adapter struct {
	commands
	options
	client       *redisproto.Lazy[valkey.Client]
	plain        *redisproto.Lazy[valkey.Client] // tracks nothing; nil if there is none
	tracking     atomic.Bool
	onInvalidate func(keys []string)
	masters      atomic.Pointer[[]slotRange]
}

var (
	_ redisproto.Sharder   = (*adapter)(nil)
	_ redisproto.Untracker = (*adapter)(nil)
	_ redisproto.Greeter   = (*adapter)(nil)
)

func (a *adapter) Features() redisproto.Features {
	built := a.client.Built()
	return redisproto.Features{Cluster: built && a.cluster, Tracking: a.tracking.Load(), Unsettled: !built, Leaves: built && !a.cluster}
}

func (a *adapter) OnInvalidate(fn func(keys []string)) { a.onInvalidate = fn }

func (a *adapter) Untracked() redisproto.Commands {
	if a.plain == nil {
		return nil
	}
	return &commands{connect: a.connectPlain}
}

// connectPlain is for what need not be tracked: the one client there is, if it turned out to track nothing.
func (a *adapter) connectPlain(ctx context.Context) (valkey.Client, error) {
	if a.tracking.Load() {
		return a.plain.Get(ctx)
	}
	return a.connect(ctx)
}

// invalidated is called with nil when all was flushed, and when a connection ended.
func (a *adapter) invalidated(messages []valkey.ValkeyMessage) {
	var keys []string
	for _, m := range messages {
		if key, err := m.ToString(); err == nil {
			keys = append(keys, key)
		}
	}
	a.onInvalidate(keys)
}

func (a *adapter) Ping(ctx context.Context) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	return client.Do(ctx, client.B().Ping().Build()).Error()
}

// Hello implements [redisproto.Greeter].
func (a *adapter) Hello(ctx context.Context) (server, version string, err error) {
	client, err := a.connect(ctx)
	if err != nil {
		return "", "", err
	}
	fields, err := client.Do(ctx, client.B().Arbitrary("HELLO").Build()).AsMap()
	if err != nil {
		return "", "", err
	}
	name, number := fields["server"], fields["version"]
	server, _ = name.ToString()
	version, _ = number.ToString()
	return server, version, nil
}

// LoadScripts loads them on the replicas of a cluster too, which valkey-go does not tell
// apart; so a node that fails does not count as long as another does not.
func (a *adapter) LoadScripts(ctx context.Context, sources []string) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	loaded := false
	for _, node := range client.Nodes() {
		var failed error
		for _, source := range sources {
			if e := node.Do(ctx, node.B().ScriptLoad().Script(source).Build()).Error(); e != nil {
				failed, err = e, e
				break
			}
		}
		loaded = loaded || failed == nil
	}
	if loaded {
		return nil
	}
	return err
}

func (a *adapter) ServerError(err error) (string, bool) {
	var reply *valkey.ValkeyError
	if !errors.As(err, &reply) || reply.IsNil() {
		return "", false
	}
	return reply.Error(), true
}

func (a *adapter) Unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func (a *adapter) Close() error {
	a.batcher.Close()
	var both sync.WaitGroup
	both.Go(a.client.Close)
	if a.plain != nil {
		both.Go(a.plain.Close)
	}
	both.Wait()
	return nil
}

// ShardedPubSub is what the user chose: whether the client is one of a cluster is known when
// it is built.
func (a *adapter) ShardedPubSub() redisproto.ShardedPubSub { return a.sharded }

func (a *adapter) AskSharded(ctx context.Context) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	if client.Mode() != valkey.ClientModeCluster {
		return redisproto.ErrNoCluster
	}
	return client.Do(ctx, client.B().PubsubShardnumsub().Build()).Error()
}
