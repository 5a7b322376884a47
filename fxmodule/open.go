package fxmodule

import (
	"fmt"
	"net/url"
	"strings"

	"go.uber.org/fx"

	"github.com/mortise-go/mortise"
)

// URL names a store as [mortise.Open] does: redis://localhost:6379, postgres://user:password@host/database.
type URL string

// Open provides locks on the store that a [URL] in the graph names, for applications that are told their store by
// configuration:
//
//	fx.Provide(func(c Config) fxmodule.URL { return fxmodule.URL(c.LockStore) }),
//	fxmodule.Open(),
//
// As for [mortise.Open], the program imports the packages of the stores that it knows. The connections are closed at
// the end. An error of a URL wraps [mortise.ErrInvalid], fails the graph, and has no password.
func Open(opts ...Option) fx.Option {
	c, err := newConfig(opts)
	if err != nil {
		return fx.Error(err)
	}
	return c.module("open", fx.Provide(fx.Private, fx.Annotate(
		func(store URL) (source, error) {
			var found choice[source]
			found.offer("fxmodule.URL (not an empty one)", store != "", false, func() source {
				return source{
					open:  func(o ...mortise.ClientOption) (*mortise.Client, error) { return mortise.Open(string(store), o...) },
					where: store.where,
				}
			})
			s, _, err := found.made(c)
			return s, err
		},
		fx.ParamTags(c.tag(`optional:"true"`)),
		fx.ResultTags(c.tag("")),
	)))
}

// where names the store without a password.
func (u URL) where() string {
	scheme, rest, _ := strings.Cut(string(u), ":")
	if x, err := url.Parse(string(u)); err == nil && x.Host != "" {
		return fmt.Sprintf("%s (%s)", x.Host, scheme)
	}
	if scheme == "sqlite" {
		path, _, _ := strings.Cut(rest, "?")
		return path
	}
	return "the store " + scheme
}
