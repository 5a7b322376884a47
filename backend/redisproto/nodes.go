package redisproto

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise/backend/redisproto/pubsub"
)

// nodes numbers the masters of a cluster, as far as the client library knows their slots.
type nodes struct {
	known  atomic.Bool  // the client library knows the slots: Master answers from memory
	asking atomic.Bool  // learn is under way
	next   atomic.Int64 // the earliest time of the next learn, in nanoseconds since 1970

	mu      sync.Mutex
	numbers map[string]int // by the adapter's name of the node
}

// learnApart is the least time between two requests for the slots of the masters.
const learnApart = 5 * time.Second

// Partition implements [backend.PartitionStore]. It returns 0 until the client library knows the slots of the cluster.
// The library may have to ask the cluster for them: that happens in the background.
func (s partitions) Partition(name string) int {
	if !s.adapter.Features().Cluster {
		return 0
	}
	sharder, ok := s.adapter.(Sharder)
	if !ok {
		return 0
	}
	if !s.nodes.known.Load() {
		s.learn(name, func(ctx context.Context) error {
			_, err := sharder.Master(ctx, name)
			return err
		})
		return 0
	}
	node, err := sharder.Master(s.ctx, name)
	if err != nil {
		return 0
	}
	n := &s.nodes
	n.mu.Lock()
	defer n.mu.Unlock()
	number := n.numbers[node]
	if number == 0 {
		if n.numbers == nil {
			n.numbers = make(map[string]int)
		}
		number = len(n.numbers) + 1
		n.numbers[node] = number
	}
	return number
}

// learn asks for the slots of the masters in the background, at most once in learnApart.
func (s partitions) learn(name string, ask func(context.Context) error) {
	n := &s.nodes
	now := time.Now().UnixNano()
	if s.closed.Load() || now < n.next.Load() || !n.asking.CompareAndSwap(false, true) {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(s.ctx, pubsub.Patience)
		defer cancel()
		if ask(ctx) == nil {
			n.known.Store(true)
		}
		n.next.Store(time.Now().Add(learnApart).UnixNano())
		n.asking.Store(false)
	}()
}

// moved asks for the slots again in the background, after commands failed: their node may be gone.
func (s partitions) moved() {
	if !s.nodes.known.Load() {
		return
	}
	if sharder, ok := s.adapter.(Sharder); ok {
		s.learn("", sharder.FindMasters)
	}
}

// Each asks all nodes of a cluster at once, and returns their answers in the order of their addresses.
func Each[N any](ctx context.Context, nodes map[string]N, ask func(context.Context, N) (any, error)) []Answer {
	answers := make([]Answer, len(nodes))
	var all sync.WaitGroup
	for i, addr := range slices.Sorted(maps.Keys(nodes)) {
		all.Go(func() {
			reply, err := ask(ctx, nodes[addr])
			answers[i] = Answer{addr, reply, err}
		})
	}
	all.Wait()
	return answers
}

// At asks the node with an address, for [Asker].Ask.
func At[N any](
	ctx context.Context, nodes map[string]N, addr string, ask func(context.Context, N) (any, error),
) (any, error) {
	node, is := nodes[addr]
	if !is {
		return nil, ErrNoNode
	}
	return ask(ctx, node)
}

// First asks nodes of a cluster at once what any of them can answer, and returns the first answer: a node that hangs
// does not delay the answer of another. An error counts if no node answers, or if it is a missing permission, which is
// missing on every node. The other questions go on under their client's own bounds: a client library may share the dial
// of a question that was cancelled with other commands.
func First[N, R any](ctx context.Context, nodes []N, ask func(context.Context, N) (R, error)) (none R, err error) {
	type answer struct {
		reply R
		err   error
	}
	answers := make(chan answer, len(nodes))
	for _, node := range nodes {
		go func() {
			reply, err := ask(context.WithoutCancel(ctx), node)
			answers <- answer{reply, err}
		}()
	}
	for range nodes {
		select {
		case x := <-answers:
			if x.err == nil || strings.HasPrefix(x.err.Error(), "NOPERM") {
				return x.reply, x.err
			}
			err = cmp.Or(err, x.err)
		case <-ctx.Done():
			return none, ctx.Err()
		}
	}
	return none, err
}
