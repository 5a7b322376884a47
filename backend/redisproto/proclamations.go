package redisproto

import (
	"context"
	"strconv"

	"github.com/mortise-go/mortise/backend"
)

// proclamationKey is the key of the proclamation of a lock's owner.
func proclamationKey(name string) string { return companion("proclaim", name) }

// proclamationChannel is the channel for changes of a proclamation. It begins with the lock's channel, so a Redis user
// of the lock may have the permission to subscribe already.
func proclamationChannel(name string) string { return channelOf(name) + ":proclaim" }

// Proclaim implements [backend.ProclamationStore].
func (s proclaimed) Proclaim(ctx context.Context, r backend.ProclaimRequest) (bool, error) {
	keys := ProclaimKeys{Lock: r.Name, Said: proclamationKey(r.Name), Channel: proclamationChannel(r.Name)}
	return s.affirmed(ctx, "proclaim", func() (int64, error) {
		return s.adapter.Proclaim(ctx, keys, ProclaimArgs{Owner: r.Owner, Token: r.Token, Text: r.Text,
			Number: r.Number, Keep: r.Keep, Publish: s.publish()})
	})
}

// Proclaimed implements [backend.ProclamationStore].
func (s proclaimed) Proclaimed(ctx context.Context, name string) (out backend.Proclamation, err error) {
	if err := s.ready(ctx); err != nil {
		return out, err
	}
	reply, err := s.adapter.Proclaimed(ctx, ProclaimedKeys{Lock: name, Said: proclamationKey(name)},
		ProclaimedArgs{Most: backend.MaxProclamation})
	switch {
	case err != nil:
		return out, s.fault(err)
	case len(reply) == 0:
		return out, nil
	case len(reply) != 4:
		return out, strange("proclaimed", reply)
	}
	token, wrong := strconv.ParseInt(reply[2], 10, 64)
	left, err := strconv.ParseInt(reply[3], 10, 64)
	if wrong != nil || err != nil || left < -2 {
		return out, strange("proclaimed", reply)
	}
	return backend.Proclamation{Owner: reply[0], Text: reply[1], Token: token, Remaining: remaining(left)}, nil
}
