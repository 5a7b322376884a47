package redisgo

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise/backend/redisproto"
)

var _ redisproto.Replicator = (*adapter)(nil)

// Replicates is so for the clients whose pipelines are known to go over one connection.
func (a *adapter) Replicates() bool {
	switch a.client.(type) {
	case *redis.Client, *redis.ClusterClient:
		return true
	}
	return false
}

func (a *adapter) Replicated(w *redisproto.Wait) redisproto.Commands {
	c := a.commands
	c.batcher = nil
	c.way = func(ctx context.Context, cmd redis.Cmder) { a.replicate(ctx, cmd, w) }
	return &c
}

// replicate takes a connection out of the pool for the time, and at most half of the pool at once:
// renewals and releases need some as well.
func (a *adapter) replicate(ctx context.Context, cmd redis.Cmder, w *redisproto.Wait) {
	args := cmd.Args() // EVALSHA, its sum, the number of keys, the first of them
	args[0], args[1] = "eval", redisproto.Source(args[1].(string))
	cluster, is := a.client.(*redis.ClusterClient)
	if !is {
		a.waits.send(ctx, a.client.(*redis.Client), false, cmd, w)
		return
	}
	node, err := cluster.MasterForKey(ctx, args[3].(string))
	if err != nil {
		cmd.SetErr(err)
		return
	}
	ask := false
	for range 4 { // redirections
		a.waits.send(ctx, node, ask, cmd, w)
		err := cmd.Err()
		if err == nil {
			return
		}
		text, replied := a.ServerError(err)
		if !replied {
			cluster.ReloadState(ctx) // it goes past go-redis' own way, which would see to that
			return
		}
		addr, asking, redirected := redisproto.Redirected(text)
		if !redirected {
			return
		}
		if ask = asking; !ask {
			cluster.ReloadState(ctx)
		}
		node = a.nodeAt(cluster, node, addr)
	}
}

// nodeAt is a client of ours of a node that another redirects to: go-redis does not give out its own, and
// may not have heard of the node.
func (a *adapter) nodeAt(cluster *redis.ClusterClient, from *redis.Client, addr string) *redis.Client {
	a.mu.Lock()
	defer a.mu.Unlock()
	rdb := a.redirected[addr]
	if rdb == nil {
		if a.redirected == nil {
			a.redirected = map[string]*redis.Client{}
		}
		opt := *from.Options()
		opt.Addr = addr
		rdb = cluster.Options().NewClient(&opt)
		a.redirected[addr] = rdb
	}
	return rdb
}

// waits are the WAITs that are on their way, by client.
type waits struct {
	mu    sync.Mutex
	rooms map[*redis.Client]*room
}

// room bounds how many there are.
type room struct {
	places chan struct{}
	users  int
}

func (x *waits) enter(rdb *redis.Client) *room {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.rooms[rdb]
	if r == nil {
		if x.rooms == nil {
			x.rooms = map[*redis.Client]*room{}
		}
		r = &room{places: make(chan struct{}, max(rdb.Options().PoolSize/2, 1))}
		x.rooms[rdb] = r
	}
	r.users++
	return r
}

func (x *waits) leave(rdb *redis.Client, r *room) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.users--; r.users == 0 {
		delete(x.rooms, rdb)
	}
}

// send sends a script and WAIT to one server.
func (x *waits) send(ctx context.Context, rdb *redis.Client, ask bool, cmd redis.Cmder, w *redisproto.Wait) {
	r := x.enter(rdb)
	defer x.leave(rdb, r)
	select {
	case r.places <- struct{}{}:
		defer func() { <-r.places }()
	case <-ctx.Done():
		cmd.SetErr(ctx.Err())
		return
	}
	if patience := rdb.Options().ReadTimeout; patience > 0 && w.Timeout > patience/2 {
		rdb = rdb.WithTimeout(patience + w.Timeout)
	}
	wait := newIntCmd(ctx, "wait", w.Replicas, int64(w.Timeout/time.Millisecond))
	cmds := make([]redis.Cmder, 0, 3)
	if ask {
		cmds = append(cmds, redis.NewStatusCmd(ctx, "asking"))
	}
	cmd.SetErr(nil)
	send(ctx, rdb, append(cmds, cmd, wait))
	w.Had, w.Err = wait.Val(), wait.Err()
}
