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
	if e == nil {
		return r
	}
	if r.Wait == 0 && !r.Try {
		r.Wait = e.Config.Wait
	}
	leased := r.Family != backend.KindCountDownLatch && r.Family != backend.KindCountingSemaphore
	if leased && r.MaxHold == 0 && r.Lease == 0 {
		r.MaxHold = e.Config.MaxHold
	}
	return r
}
