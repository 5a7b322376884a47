package engine

import "github.com/mortise-go/mortise/backend"

// FullName is a name as the store knows it: with the client's prefix. An empty name stays empty, and is refused.
func FullName(e *Engine, name string) string {
	if e == nil || e.Config.Prefix == "" || name == "" {
		return name
	}
	return e.Config.Prefix + name
}

// WithDefaults is a request with what its options left to the client.
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
