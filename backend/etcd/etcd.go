// Package etcd lets mortise keep its locks in etcd 3.6, by its client v3: with queues, fencing tokens and
// all kinds of locks but several in one step.
//
//	locks, err := mortise.New(etcd.New(clientv3.Config{Endpoints: []string{"etcd-0:2379", "etcd-1:2379"}}, "locks/"))
//
// A lock is one small value below the prefix. Each grant and each release is a transaction that a majority of the
// members has on disk when it is answered: no change of the leader takes a lock back, and a client that reaches
// only a minority gets mortise.ErrUnavailable.
//
// Etcd has no clock. A lease ends for others when its time has passed by the clocks of the clients that saw it, or
// of the member that leads, which counts in seconds: later than by a clock of the store, never earlier. See
// decision 136. Clocks of the day are used for schedules alone.
//
// A client that waits has a key with an etcd lease of ten seconds for its notices. No lock depends on it.
//
// Package etcd is a module of its own, so users of other stores do not get etcd's client.
package etcd

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/cas"
)

// Limits of requests. Etcd takes 128 operations, of which nested ones count, and 1.5 MiB by default.
const (
	batch    = 32
	sessions = 64 // that a swap has notices for; more of them look for themselves
	size     = 1 << 20
)

// New returns a backend on an etcd. Nothing is connected before the first request. All keys begin with the prefix;
// an empty one is "mortise/". A user needs the right to read and to write them. Clients share locks if they have
// the same prefix.
//
// Of the configuration New sets what mortise depends on: no request is sent twice, broken connections are made again
// within a second. Its logger, if it is nil, logs nothing.
func New(config clientv3.Config, prefix string) backend.Backend {
	return cas.New(func() (cas.Driver, error) { return newDriver(config, prefix) })
}

func newDriver(config clientv3.Config, prefix string) (*driver, error) {
	if len(config.Endpoints) == 0 {
		return nil, errors.New("etcd: no endpoints; name at least one, host:port")
	}
	if prefix == "" {
		prefix = "mortise/"
	}
	config.MaxUnaryRetries = 1 // is the number of attempts
	config.PermitWithoutStream = false
	if config.DialTimeout == 0 {
		config.DialTimeout = 5 * time.Second
	}
	if config.DialKeepAliveTime == 0 { // less than five seconds are refused
		config.DialKeepAliveTime, config.DialKeepAliveTimeout = 6*time.Second, 3*time.Second
	}
	if config.Logger == nil && config.LogConfig == nil {
		config.Logger = zap.NewNop()
	}
	again := backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}
	config.DialOptions = append([]grpc.DialOption{
		grpc.WithChainUnaryInterceptor(atOnce),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: 3 * time.Second}),
	}, config.DialOptions...)
	return &driver{config: config, prefix: prefix, ages: ages{seen: make(map[int64]began)}}, nil
}

// driver implements [cas.Driver] and [cas.Lister].
type driver struct {
	config clientv3.Config
	prefix string
	ages   ages
	mu     sync.Mutex
	client *clientv3.Client // nil: to be made
	closed bool
}

// Limits implements [cas.Driver].
func (d *driver) Limits() cas.Limits {
	return cas.Limits{Value: size / 4, Batch: batch, Lanes: 2, NoClock: true}
}

// Close closes the connections.
func (d *driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed = true; d.client == nil {
		return nil
	}
	return d.client.Close()
}

// begin returns the client, and a context for a request, which a member without a leader refuses. With a password,
// making the client asks etcd for a token.
func (d *driver) begin(ctx context.Context) (context.Context, *clientv3.Client, error) {
	if ctx.Err() != nil {
		return ctx, nil, ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ctx, nil, context.Canceled
	}
	if d.client == nil {
		c, err := clientv3.New(d.config)
		if err != nil {
			return ctx, nil, err
		}
		d.client = c
	}
	return clientv3.WithRequireLeader(ctx), d.client, nil
}

// names are the keys' prefix, and below to that of what is sent to a session.
func (d *driver) names() string            { return d.prefix + "lock/" }
func (d *driver) below(sess string) string { return d.prefix + "to/" + sess + "/" }

// Swap implements [cas.Driver]. A batch is a transaction of nested ones; what is too long for one request is sent in
// several.
func (d *driver) Swap(ctx context.Context, in []cas.Swap, out []cas.Swapped) error {
	ctx, c, err := d.begin(ctx)
	if err != nil {
		return unsent(err)
	}
	if len(in) == 0 {
		_, err = c.Get(ctx, d.names(), clientv3.WithCountOnly())
		return unsent(err)
	}
	for first := true; len(in) > 0; first = false {
		n := 1
		for sum := weight(&in[0]); n < len(in) && sum+weight(&in[n]) <= size; n++ {
			sum += weight(&in[n])
		}
		err := d.send(watchSending(ctx), c, in[:n], out[:n])
		if err != nil && first {
			return err // if others are left, they have not been sent
		}
		for i := range in[:n] {
			if err != nil {
				out[i].Err = err
			}
		}
		in, out = in[n:], out[n:]
	}
	return nil
}

// weight is how long a swap is.
func weight(q *cas.Swap) int {
	sum := len(q.Value)
	for i := range q.Notices {
		sum += len(q.Notices[i].Text) + 64
	}
	return sum
}

// send carries out swaps in a transaction.
func (d *driver) send(ctx context.Context, c *clientv3.Client, in []cas.Swap, out []cas.Swapped) error {
	var head header
	if slices.ContainsFunc(in, func(q cas.Swap) bool { return q.Value != nil }) {
		var err error
		if head, err = d.ages.head(ctx, c); err != nil {
			return unsent(err)
		}
	}
	ops := make([]clientv3.Op, len(in))
	for i := range in {
		ops[i] = d.op(i, &in[i], head)
	}
	r, err := c.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return fault(ctx, err)
	}
	got := time.Now()
	for i := range in {
		one, q := r.Responses[i].GetResponseTxn(), &in[i]
		out[i] = cas.Swapped{Version: cas.None, Now: time.Duration(r.Header.Revision) * cas.NoClockStep}
		switch {
		case one.Succeeded && q.Version != cas.Look:
			if out[i].Done = true; q.Value != nil {
				out[i].Version, out[i].Stamp = r.Header.Revision, q.Stamp
				out[i].Now = q.Stamp + got.Sub(head.sent)
			}
		case len(one.Responses[0].GetResponseRange().Kvs) > 0:
			out[i] = d.read(ctx, c, one.Responses[0].GetResponseRange().Kvs[0], got)
		}
	}
	return nil
}

// op is a swap as a nested transaction. At is the swap's place in its batch.
func (d *driver) op(at int, q *cas.Swap, head header) clientv3.Op {
	key := d.names() + q.Key
	get := []clientv3.Op{clientv3.OpGet(key)}
	if q.Version == cas.Look {
		return clientv3.OpTxn(nil, get, nil)
	}
	then := []clientv3.Op{clientv3.OpDelete(key)}
	if q.Value != nil {
		then[0] = clientv3.OpPut(key, head.pack(q))
	}
	to := make(map[string]string)
	for _, n := range q.Notices {
		if _, has := to[n.Session]; has || len(to) < sessions {
			to[n.Session] += n.Text + "\n"
		}
	}
	for session, texts := range to {
		below := d.below(session)
		listens := clientv3.Compare(clientv3.CreateRevision(below), ">", 0) // then its lease is there, too
		then = append(then, clientv3.OpTxn([]clientv3.Cmp{listens}, []clientv3.Op{
			clientv3.OpPut(below+strconv.Itoa(at), texts, clientv3.WithLease(d.leaseOf(session))),
		}, nil))
	}
	return clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", q.Version)}, then, get)
}

// read reads a value that came at a time. One that is not of mortise is passed on as it is.
func (d *driver) read(ctx context.Context, c *clientv3.Client, kv *mvccpb.KeyValue, got time.Time) cas.Swapped {
	head, stamp, data := unpack(kv.Value)
	r := cas.Swapped{Version: kv.ModRevision, Value: data, Stamp: stamp, Now: stamp}
	if head.lease != 0 {
		r.Now += d.ages.since(ctx, c, head, got)
	}
	return r
}

// List implements [cas.Lister].
func (d *driver) List(ctx context.Context, prefix, after string, most int) ([]cas.Kept, error) {
	ctx, c, err := d.begin(ctx)
	if err != nil {
		return nil, unsent(err)
	}
	from, end := d.names()+prefix, clientv3.GetPrefixRangeEnd(d.names()+prefix)
	if next := d.names() + after + "\x00"; after != "" && next > from {
		from = next
	}
	if from >= end {
		return nil, nil
	}
	r, err := c.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(int64(most)),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend))
	if err != nil {
		return nil, unsent(err)
	}
	got, all := time.Now(), make([]cas.Kept, len(r.Kvs))
	for i, kv := range r.Kvs {
		all[i].Key = strings.TrimPrefix(string(kv.Key), d.names())
		all[i].Swapped = d.read(ctx, c, kv, got)
	}
	return all, nil
}
