package engine

import "github.com/mortise-go/mortise/backend"

// FullName returns a name as the store has it: with the client's prefix. An empty name stays empty, to be refused.
func FullName(e *Engine, name string) string {
	if e == nil || e.Config.Prefix == "" || name == "" {
		return name
	}
	return e.Config.Prefix + name
}

// WithDefaults returns a request with the client's defaults for options that were not given.
func WithDefaults(e *Engine, r Request) Request {
	if e == nil || e.Config.Defaults == nil {
		return r
	}
	return r.Over(e.Config.Defaults)
}

// Over returns a request with the options of base that it has not been given, as far as they apply to it.
func (r Request) Over(base *Request) Request {
	if !r.Try && r.Wait == 0 {
		r.Wait = base.Wait
	}
	if !r.Try && r.MaxWaiters == 0 {
		r.MaxWaiters = base.MaxWaiters
	}
	switch r.Family {
	case backend.KindCountDownLatch, backend.KindCountingSemaphore:
		return r
	}
	if r.Lease == 0 && r.MaxHold == 0 {
		r.Lease, r.MaxHold = base.Lease, base.MaxHold
	}
	if r.Family == backend.KindSemaphore {
		return r
	}
	if r.Replicas.N == 0 {
		r.Replicas = base.Replicas
	}
	if !r.Reentrant() {
		return r
	}
	r.Fenced, r.NonReentrant = r.Fenced || base.Fenced, r.NonReentrant || base.NonReentrant
	if r.Polling == 0 && r.Family == backend.KindLock && base.Reentrant() {
		r.Family, r.Polling = base.Family, base.Polling
	}
	return r
}

// Reentrant reports whether the request is for the reentrant lock: plain or fair, fenced, non-reentrant or polling.
func (r *Request) Reentrant() bool {
	return r.Family == backend.KindLock || r.Family == backend.KindFair
}
