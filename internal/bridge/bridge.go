// Package bridge is the way of the packages beside mortise to the engine of its clients. Package mortise sets the
// variables when it is initialised, before any package that imports it. Their types are in the comments: this package
// cannot name what mortise exports.
package bridge

var (
	// Engine returns a client's engine; nil for a nil or zero client.
	Engine any // func(*mortise.Client) *engine.Engine
	// Request applies options to a request, and checks the name and the combination of options.
	Request any // func(engine.Request, []mortise.Option) (engine.Request, error)
	// Configure returns an option of a client.
	Configure any // func(func(*engine.Config) error) mortise.ClientOption
	// Lease returns an engine's lease as users have it, without an allocation.
	Lease any // func(*lease.Handle) *mortise.Lease
	// Holding returns the implementation of a lease; nil for a nil or zero lease.
	Holding any // func(*mortise.Lease) lease.Holding
	// Delegations returns delegations for the locks that a context holds, most of them at most, and the number of live
	// holds without one.
	Delegations any // func(ctx context.Context, most int) ([]lease.Delegation, int)
	// Delegate returns a context with delegations that a client has accepted.
	Delegate any // func(context.Context, *mortise.Client, int, []lease.Delegation) (context.Context, error)
)
