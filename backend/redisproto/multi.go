package redisproto

import (
	"context"
	"fmt"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto/heldcache"
)

// Groups implements [backend.BatchStore]: one group, or on a cluster one for each slot.
func (s multiLock) Groups(names []string) [][]int {
	f := s.adapter.Features()
	return Groups(f.Cluster || f.Unsettled, len(names), func(i int) string { return names[i] })
}

func (s multiLock) AcquireAll(ctx context.Context, in []backend.AcquireRequest) ([]backend.AcquireReply, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if err := s.together(in); err != nil || len(in) == 0 {
		return nil, err
	}
	out := make([]backend.AcquireReply, len(in))
	track := s.adapter.Features().Tracking
	sent := time.Now()
	queries := make([]heldcache.Query, 0, len(in))
	if track {
		refused := false
		for i, r := range in {
			if reply, held := refusedByCache(s.core, r); held {
				out[i], refused = reply, true
			}
		}
		if refused {
			return out, nil
		}
		for _, r := range in {
			queries = append(queries, s.seen.Begin(r.Name))
		}
	}
	items, replies := make([]AcquireAllItem, len(in)), make([]BatchReply, len(in))
	fenced := false
	for i, r := range in {
		fenced = fenced || r.Fenced
		items[i] = AcquireAllItem{Lock: r.Name, Token: tokenKey(r.Name), Owner: r.Owner, Lease: r.Lease,
			Fenced: r.Fenced}
	}
	s.adapter.AcquireAll(ctx, AcquireAllArgs{Track: track}, items, replies)
	granted, err := s.decodeAll(in, replies, out, fenced)
	track = track && s.adapter.Features().Tracking // the connection may have turned out to have no tracking
	for i, l := range queries {
		switch {
		case err == nil && !granted && out[i].Remaining != 0 && track:
			s.seen.Refused(l, sent, out[i].Remaining)
		default:
			s.seen.End(l)
		}
		if err == nil && granted {
			s.seen.Forget(in[i].Name)
		}
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// together returns an error if the requests are not of one group, or if a name occurs twice.
func (s multiLock) together(in []backend.AcquireRequest) error {
	names := make([]string, len(in))
	seen := make(map[string]bool, len(in))
	for i, r := range in {
		if seen[r.Name] {
			return &backend.RequestError{Index: i, Err: &backend.Fault{
				Err: fmt.Errorf("AcquireAll takes different locks: %q is there twice", r.Name),
			}}
		}
		names[i], seen[r.Name] = r.Name, true
	}
	if len(s.Groups(names)) > 1 {
		return &backend.Fault{Err: fmt.Errorf("%q and %d more are not of one slot", names[0], len(names)-1),
			Remedy: "ask for each of the groups of Groups by itself"}
	}
	return nil
}

// decodeAll decodes the replies into out, and reports whether all locks were granted.
func (s multiLock) decodeAll(in []backend.AcquireRequest, replies []BatchReply, out []backend.AcquireReply,
	fenced bool) (bool, error) {
	granted := true
	for i, r := range replies {
		if r.Err != nil {
			return false, s.faultOf(r.Err, fenced)
		}
		switch {
		case r.Value == -2:
			return false, &backend.RequestError{Index: i, Err: &backend.Fault{
				Err:    fmt.Errorf("the key %q holds something else: %w", in[i].Name, backend.ErrWrongKind),
				Remedy: remedyWrongKind,
			}}
		case r.Value < 0:
			granted = false
		case r.Value > 0 && !in[i].Fenced:
			return false, strange("acquire_all", r.Value)
		}
	}
	for i, r := range replies {
		switch {
		case granted:
			out[i] = backend.AcquireReply{Granted: true, Token: r.Value}
		case r.Value < 0:
			out[i].Remaining = remaining(-r.Value - 2)
		}
	}
	return granted, nil
}

// ReleaseAll implements [backend.BatchStore]. It sends a script for each renewBatch of requests, on a cluster split by
// slot.
func (s multiLock) ReleaseAll(ctx context.Context, in []backend.ReleaseRequest, out []backend.ReleaseResult) {
	for len(in) > 0 {
		n := min(len(in), renewBatch)
		s.releaseSome(ctx, in[:n], out[:n])
		in, out = in[n:], out[n:]
	}
}

func (s multiLock) releaseSome(ctx context.Context, in []backend.ReleaseRequest, out []backend.ReleaseResult) {
	if err := s.ready(ctx); err != nil {
		for i := range out {
			out[i] = backend.ReleaseResult{Err: err}
		}
		return
	}
	items, replies := make([]ReleaseAllItem, len(in)), make([]BatchReply, len(in))
	for i, r := range in {
		items[i] = ReleaseAllItem{Lock: r.Name, Channel: channelOf(r.Name), Owner: r.Owner, Keep: int64(r.Keep)}
	}
	s.adapter.ReleaseAll(ctx, ReleaseAllArgs{Publish: s.publish()}, items, replies)
	for i, r := range replies {
		if r.Err == nil && r.Value == -2 {
			out[i] = backend.ReleaseResult{Err: &backend.Fault{
				Err:    fmt.Errorf("the key %q holds something else: %w", in[i].Name, backend.ErrWrongKind),
				Remedy: remedyWrongKind,
			}}
			continue
		}
		held, err := s.wrote(in[i].Name, "release_all", r.Value, r.Err)
		out[i] = backend.ReleaseResult{Held: held, Err: err}
	}
}
