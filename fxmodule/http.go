package fxmodule

import (
	"fmt"
	"net/http"

	"go.uber.org/fx"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// HTTP makes a module also provide a middleware on its Locker: a func(http.Handler) http.Handler
// under a non-empty name. See [httplock.New] for key and opts; HTTP panics on the same mistakes,
// while the graph is built.
//
// A middleware with further needs than the Locker (httplock.WithReaders), and the interceptors of
// package grpclock, are provided by a constructor in the application, also in one line; so programs
// without gRPC do not link gRPC.
func HTTP(name string, key httplock.KeyFunc, opts ...httplock.Option) Option {
	return func(c *config) error {
		if err := plain("HTTP", name); err != nil {
			return err
		}
		if key == nil {
			return fmt.Errorf("%w: HTTP(%q): the KeyFunc is nil", mortise.ErrInvalid, name)
		}
		c.middleware = append(c.middleware, middleware{name, func(locks mortise.Locker) func(http.Handler) http.Handler {
			return httplock.New(locks, key, opts...)
		}})
		return nil
	}
}

// middleware is a named middleware that a module provides.
type middleware struct {
	name string
	make func(mortise.Locker) func(http.Handler) http.Handler
}

// provide returns the option that provides m. It is called after all options, so c has its final name.
func (m middleware) provide(c *config) fx.Option {
	return fx.Provide(fx.Annotate(m.make, fx.ParamTags(c.tag("")), fx.ResultTags(`name:"`+m.name+`"`)))
}
