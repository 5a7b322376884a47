package proto

import "context"

// Commands has what redisproto.Commands lacks: no arguments, a batch of two keys
// an item, a batch that shares nothing, an interface embedded.
type Commands interface {
	//mortise:script count
	Count(ctx context.Context, k CountKeys, a CountArgs) ([]int64, error)
	//mortise:script hand_on batch
	HandOn(ctx context.Context, items []HandOnItem, out []HandOnReply)
	Lists
}

type Lists interface {
	//mortise:script list_all
	ListAll(ctx context.Context, k ListAllKeys) ([]string, error)
}

type CountKeys struct{ Lock, Channel string }

type CountArgs struct {
	Holds int64
	Fair  bool
}

type HandOnItem struct {
	Lock  string
	Queue string
	Owner string
}

type HandOnReply struct {
	Value int64
	Err   error
}

type ListAllKeys struct{ Lock string }
