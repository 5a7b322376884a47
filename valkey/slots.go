package valkey

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/valkey-io/valkey-go"
)

// nodePatience is how long one node may take to tell who has which slot.
const nodePatience = time.Second

// slotRange is who has the slots from first to last.
type slotRange struct {
	first, last int64
	node        string
}

// FindMasters asks one node after the other until one answers.
func (a *adapter) FindMasters(ctx context.Context) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	err = errors.New("valkey-go knows no node of the cluster")
	for addr, node := range client.Nodes() {
		var masters []slotRange
		if masters, err = askSlots(ctx, addr, node); err == nil {
			a.masters.Store(&masters)
			return nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return err
}

// askSlots gives up on a node that dials or hangs for long; what it began ends by itself.
func askSlots(ctx context.Context, addr string, node valkey.Client) ([]slotRange, error) {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	got := make(chan valkey.ValkeyResult, 1)
	go func() { got <- node.Do(ctx, node.B().ClusterSlots().Build()) }()
	var reply valkey.ValkeyResult
	select {
	case reply = <-got:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ranges, err := reply.ToArray()
	if err != nil {
		return nil, err
	}
	var masters []slotRange
	for _, r := range ranges {
		m, err := parseRange(r, addr)
		if err != nil {
			return nil, fmt.Errorf("CLUSTER SLOTS of %s: %w", addr, err)
		}
		if m.node != "" {
			masters = append(masters, m)
		}
	}
	return masters, nil
}

// parseRange reads first, last, master, replicas. valkey-go names nodes in the same way.
func parseRange(r valkey.ValkeyMessage, asked string) (m slotRange, err error) {
	fields, err := r.ToArray()
	if err != nil || len(fields) < 3 {
		return m, fmt.Errorf("not a range of slots: %v %w", fields, err)
	}
	first, err1 := fields[0].AsInt64()
	last, err2 := fields[1].AsInt64()
	master, err3 := fields[2].ToArray()
	if err := errors.Join(err1, err2, err3); err != nil || len(master) < 2 {
		return m, fmt.Errorf("not a range of slots: %w", err)
	}
	host, err := master[0].ToString()
	if err != nil && !valkey.IsValkeyNil(err) {
		return m, err
	}
	port, err := master[1].AsInt64()
	if err != nil {
		return m, err
	}
	switch host {
	case "": // it does not know its own address
		host, _, _ = net.SplitHostPort(asked)
	case "?": // it does not know that one's
		return m, nil
	}
	return slotRange{first, last, net.JoinHostPort(host, strconv.FormatInt(port, 10))}, nil
}
