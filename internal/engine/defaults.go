package engine

import "github.com/mortise-go/mortise/backend"

// FullName is a name as the store knows it: with the client's prefix. An empty name stays empty, and is refused.
func (e *Engine) FullName(name string) string {
	if e == nil || e.Config.Prefix == "" || name == "" {
		return name
	}
	return e.Config.Prefix + name
}

// WithDefaults is a request with what its options left to the client.
func (e *Engine) WithDefaults(r Request) Request {
	if e == nil {
		return r
	}
	if r.Wait == 0 && !r.Try {
		r.Wait = e.Config.Wait
	}
	if r.MaxHold == 0 && r.Lease == 0 && r.Family != backend.KindCountDownLatch && r.Family != backend.KindCountingSemaphore {
		r.MaxHold = e.Config.MaxHold
	}
	return r
}
