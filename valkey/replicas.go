package valkey

import (
	"context"
	"strconv"

	"github.com/valkey-io/valkey-go"

	"github.com/mortise-go/mortise/backend/redisproto"
)

var _ redisproto.Replicator = (*adapter)(nil)

func (a *adapter) Replicates() bool { return true }

func (a *adapter) Replicated(w *redisproto.Wait) redisproto.Commands {
	c := a.commands
	c.way = func(ctx context.Context, x *call) { a.replicate(ctx, x, w) }
	return &c
}

// replicate sends a script and WAIT. WAIT being a command that blocks, valkey takes a connection of its
// pool for both. It would follow a redirection for each of them by itself, so on a
// cluster it is given a connection to one node.
func (a *adapter) replicate(ctx context.Context, x *call, w *redisproto.Wait) {
	ctx, cancel := w.Within(ctx)
	defer cancel()
	args := x.cmd.Commands() // EVALSHA, its sum, the number of keys, the keys and the arguments
	keys, _ := strconv.Atoi(args[2])
	x.cmd = x.client.B().Arbitrary("EVAL", redisproto.Source(args[1]), args[2]).Keys(args[3 : 3+keys]...).Args(args[3+keys:]...).Build().Pin()
	if !a.cluster {
		x.waited(w, x.client.DoMulti(ctx, x.cmd, waiting(x.client, w)))
		return
	}
	x.onNode(ctx, w)
	for range 3 { // redirections
		text, replied := a.ServerError(x.reply.Error())
		if !replied {
			return
		}
		addr, ask, redirected := redisproto.Redirected(text)
		if !redirected {
			return
		}
		node := x.client.Nodes()[addr]
		if node == nil { // it hears of the node by following the redirection of a command of its own
			_ = x.client.Do(ctx, x.client.B().Exists().Key(args[3]).Build()).Error()
			if node = x.client.Nodes()[addr]; node == nil {
				return // the redirection is the error
			}
		}
		cmds := valkey.Commands{x.cmd, waiting(node, w)}
		if ask {
			cmds = append(valkey.Commands{node.B().Asking().Build()}, cmds...)
		}
		x.waited(w, node.DoMulti(ctx, cmds...))
	}
}

// onNode sends them to the node that valkey takes for the master.
func (x *call) onNode(ctx context.Context, w *redisproto.Wait) {
	conn, done := x.client.Dedicate()
	replies := conn.DoMulti(ctx, x.cmd, waiting(x.client, w))
	for _, reply := range replies {
		if reply.NonValkeyError() != nil { // WAIT may still hold it up
			conn.Close()
			break
		}
	}
	done()
	x.waited(w, replies)
}

func waiting(client valkey.Client, w *redisproto.Wait) valkey.Completed {
	return client.B().Wait().Numreplicas(int64(w.Replicas)).Timeout(w.Timeout.Milliseconds()).Build()
}

// waited notes the replies; the last two are those of the script and of WAIT.
func (x *call) waited(w *redisproto.Wait, replies []valkey.ValkeyResult) {
	n := len(replies)
	x.reply = replies[n-2]
	w.Had, w.Err = replies[n-1].AsInt64()
}
