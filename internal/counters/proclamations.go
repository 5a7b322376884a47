package counters

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/retry"
)

// Proclamations are the proclamations of the owners of one lock.
type Proclamations struct {
	counted[backend.ProclamationStore]
}

// NewProclamations returns the proclamations of a lock.
func NewProclamations(e *engine.Engine, name string) Proclamations {
	return Proclamations{count(e, backend.Topic{Kind: backend.KindProclamation, Name: name}, "proclamations",
		func(can *backend.Capabilities) backend.ProclamationStore { return can.Proclamations })}
}

// All yields the present proclamation, and then each new one, until ctx ends. It yields an error in place of a
// proclamation: after fail.Unavailable it tries again, after another error it ends.
func (p *Proclamations) All(ctx context.Context) iter.Seq2[backend.Proclamation, error] {
	return func(yield func(backend.Proclamation, error) bool) {
		var last *backend.Proclamation // nil if unknown
		for failures := 0; ; {
			now, err := p.after(ctx, last)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				failures++
				if !yield(backend.Proclamation{}, err) || !errors.Is(err, fail.Unavailable) {
					return
				}
				last = nil
				pause(ctx, retry.After(failures, 50*time.Millisecond, time.Second))
			case last == nil || !same(now, *last):
				if failures = 0; !yield(now, nil) {
					return
				}
				last = &now
			}
		}
	}
}

// after reads the proclamation once it may differ from last; at once if last is nil.
func (p *Proclamations) after(ctx context.Context, last *backend.Proclamation) (now backend.Proclamation, err error) {
	if last != nil {
		seen, err := p.await(ctx, *last)
		if seen != nil || err != nil {
			return value(seen), err
		}
	}
	return p.read(ctx)
}

func (p *Proclamations) read(ctx context.Context) (backend.Proclamation, error) {
	return ask(ctx, &p.counted, "proclamations", backend.ProclamationStore.Proclaimed, p.Topic.Name)
}

func value(p *backend.Proclamation) (v backend.Proclamation) {
	if p != nil {
		v = *p
	}
	return v
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// same reports whether two proclamations have the same owner, token and text.
func same(a, b backend.Proclamation) bool {
	return known(a) == known(b)
}

// known returns the part of a proclamation that a loop compares.
func known(p backend.Proclamation) backend.Proclamation {
	p.Remaining = 0
	return p
}

// await waits until the proclamation differs from last, and returns it. It returns nil if another call of this client
// has read a change: the caller then reads the proclamation itself.
func (p *Proclamations) await(ctx context.Context, last backend.Proclamation) (seen *backend.Proclamation, err error) {
	w, cancel, err := p.Waiting(ctx, engine.Request{Name: p.Topic.Name, Family: p.Topic.Kind})
	if err != nil {
		return nil, err
	}
	defer cancel()
	w.Quiet()
	s, err := p.session()
	if err != nil {
		return nil, p.fail("proclamations", err)
	}
	w.Early(known(last)) // the loops that wait may have seen what came after last
	err = w.For(0, func() (engine.Answer, error) {
		now, a, err := p.look(w.Context(), s, last)
		if a.Got {
			seen = now
		}
		return a, err
	}, nil)
	return seen, err
}

// look reads the proclamation once, and serves all calls of this client that wait and have seen another. Last is what
// this call has seen. Another call may have seen a later one, which is gone again.
func (p *Proclamations) look(
	wait context.Context, s backend.ProclamationStore, last backend.Proclamation,
) (*backend.Proclamation, engine.Answer, error) {
	p.Hold()
	defer p.End()
	now := new(backend.Proclamation) // on the heap: the request goes on when its caller has left
	err := p.Await(wait, func() (err error) {
		*now, err = s.Proclaimed(p.Base(), p.Topic.Name)
		return err
	}, nil)
	switch {
	case fail.IsGone(err):
		return nil, engine.Answer{}, err
	case err != nil:
		return nil, engine.Answer{Failure: err}, nil
	}
	p.Tell(known(*now))
	switch {
	case same(*now, last) && now.Owner == "":
		return nil, engine.Answer{Left: -1}, nil
	case same(*now, last):
		return nil, engine.Answer{Left: now.Remaining}, nil
	}
	return now, engine.Answer{Got: true, More: true}, nil // More: a call that joined later asks
}
