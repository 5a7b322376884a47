package redisgo

import (
	"context"
	"fmt"
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
	c.outbox = nil
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
		var addr string
		var redirected bool
		if addr, ask, redirected = redisproto.Redirected(text); !redirected {
			return
		}
		if node, err = a.nodeAt(ctx, cluster, addr); err != nil {
			return // the redirection is the error
		}
	}
}

// nodeAt is go-redis' client of a master; one that has no slot yet gets a client of ours.
func (a *adapter) nodeAt(ctx context.Context, cluster *redis.ClusterClient, addr string) (*redis.Client, error) {
	var mu sync.Mutex
	var found, any *redis.Client
	err := cluster.ForEachMaster(ctx, func(_ context.Context, rdb *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		if any = rdb; rdb.Options().Addr == addr {
			found = rdb
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case found != nil:
		return found, nil
	case any == nil:
		return nil, fmt.Errorf("%s is no master of the cluster", addr)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.importing == nil {
		a.importing = map[string]*redis.Client{}
	}
	rdb := a.importing[addr]
	if rdb == nil {
		opt := *any.Options()
		opt.Addr = addr
		rdb = cluster.Options().NewClient(&opt)
		a.importing[addr] = rdb
	}
	return rdb, nil
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
