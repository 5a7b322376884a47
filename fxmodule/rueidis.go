package fxmodule

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	redis "github.com/redis/rueidis"
	"go.uber.org/fx"

	"github.com/mortise-go/mortise/rueidis"
)

// Rueidis provides locks over rueidis, on the client or the options in the graph: rueidis.Client or
// rueidis.ClientOption. Prefer options: with a client made elsewhere there is no client-side
// caching (see package rueidis of this module).
func Rueidis(opts ...Option) fx.Option {
	c, err := newConfig(opts)
	if err != nil {
		return fx.Error(err)
	}
	optional := c.tag(`optional:"true"`)
	return c.module("rueidis", fx.Provide(fx.Private, fx.Annotate(
		func(client redis.Client, opt redis.ClientOption) (source, error) {
			var found choice[source]
			found.offer("rueidis.Client", client != nil, false, func() source {
				return source{Backend: rueidis.NewWithClient(client), where: func() string {
					return strings.Join(slices.Sorted(maps.Keys(client.Nodes())), ", ")
				}}
			})
			// The backend makes a client of the options, and closes that client.
			found.offer("rueidis.ClientOption", len(opt.InitAddress) > 0, false, func() source {
				return source{Backend: rueidis.New(opt), where: func() string {
					if opt.Sentinel.MasterSet != "" {
						return fmt.Sprintf("master %q of the sentinels %s", opt.Sentinel.MasterSet, strings.Join(opt.InitAddress, ", "))
					}
					return strings.Join(opt.InitAddress, ", ")
				}}
			})
			s, _, err := found.made(c)
			return s, err
		},
		fx.ParamTags(optional, optional),
		fx.ResultTags(c.tag("")),
	)))
}
