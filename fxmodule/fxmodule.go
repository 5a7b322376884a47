// Package fxmodule puts mortise into an fx application.
//
//	fx.New(
//		fx.Supply(&redis.UniversalOptions{Addrs: []string{"localhost:6379"}}),
//		fxmodule.GoRedis(),
//		fx.Invoke(func(locks mortise.Locker) { ... }),
//	)
//
// A module provides a [mortise.Locker] and the [*mortise.Client] behind the Locker, and middleware
// on request of [HTTP]. There is a module for each backend: [Memory], [GoRedis] and [Rueidis]. With
// [Named], several modules stand in the same graph.
//
// # What it takes from the graph
//
//	*slog.Logger               gets the client's messages to the operator
//	group "mortise.observers"  each a mortise.Observer: see Observe and Telemetry
//	a client or its options    of a named module: under the same name
//	*memory.Store              for Memory; of a named module: under the same name
//
// All of these are optional except a Redis client: [GoRedis] needs exactly one of
// redis.UniversalClient, *redis.Client, *redis.ClusterClient, *redis.UniversalOptions,
// *redis.Options, *redis.FailoverOptions and *redis.ClusterOptions; [Rueidis] needs rueidis.Client
// or rueidis.ClientOption. Several are an error, and so is none. A client from the graph is left
// open at the end; a client made of options is closed.
//
// # Lifecycle
//
// Building the graph does no I/O. OnStart pings the store and loads the scripts, so a wrong address
// fails the start with a clear error, at the latest when the start's context ends. OnStop is
// [mortise.Client.Shutdown]: fx first stops the services with a Locker. Shutdown waits for held
// locks, and stops waiting before the stop's deadline, by a tenth of the time that is left, two
// seconds at most: fx skips all remaining OnStop hooks once the stop's context has ended. Locks
// still held then are not released under running work, and expire.
package fxmodule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"go.uber.org/fx"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

// Option changes a module.
type Option func(*config) error

type config struct {
	name       string
	locker     []mortise.LockerOption
	options    []mortise.ClientOption
	middleware []middleware
}

// Named provides and takes everything under a name, like fx's tag `name:"..."`: the Locker, the
// Client, and the Redis client or options behind them. Observers and the logger are shared by all
// modules; metrics, events and log lines carry the name: the name is the client's
// [mortise.WithName], unless ClientOptions give another. The name is not empty and has no quotes or
// backquotes.
func Named(name string) Option {
	return func(c *config) error {
		c.name = name
		return plain("Named", name)
	}
}

// plain returns an error for a name that cannot stand in a struct tag unchanged.
func plain(of, name string) error {
	if name == "" || strings.Contains(name, "`") || strconv.Quote(name) != `"`+name+`"` {
		return fmt.Errorf("%w: %s(%q): a name is not empty, and is plain text without quotes", mortise.ErrInvalid, of, name)
	}
	return nil
}

// ClientOptions are passed to [mortise.New], after the values from the graph: a watchdog timeout,
// say.
func ClientOptions(opts ...mortise.ClientOption) Option {
	return func(c *config) error {
		c.options = append(c.options, opts...)
		return nil
	}
}

// LockerOptions make the provided Locker the result of [mortise.Client.Locker] with these options;
// the Client does not change.
func LockerOptions(opts ...mortise.LockerOption) Option {
	return func(c *config) error {
		c.locker = append(c.locker, opts...)
		return nil
	}
}

// Memory provides locks within this process: for tests, and for programs with a single process. All
// clients of a module share its store; two modules have two stores. A *memory.Store in the graph
// replaces the module's store. Two applications with the same *memory.Store share locks as two
// processes do on a server; a test can make the store unavailable.
func Memory(opts ...Option) fx.Option {
	c, err := newConfig(opts)
	if err != nil {
		return fx.Error(err)
	}
	return c.module("memory", fx.Provide(fx.Private, fx.Annotate(
		func(store *memory.Store) source {
			if store == nil {
				store = memory.New()
			}
			return source{Backend: store}
		},
		fx.ParamTags(c.tag(`optional:"true"`)),
		fx.ResultTags(c.tag("")),
	)))
}

// source is the backend of a module's client.
type source struct {
	backend.Backend
	close func() error // closes the Redis client; nil if the module does not close it
}

func newConfig(opts []Option) (*config, error) {
	c := new(config)
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("fxmodule: %w: a nil Option; omit it", mortise.ErrInvalid)
		}
		if err := o(c); err != nil {
			return nil, fmt.Errorf("fxmodule: %w", err)
		}
	}
	return c, nil
}

// tag returns the struct tag of a dependency of this module: the module's name and more.
func (c *config) tag(more string) string {
	if c.name == "" {
		return more
	}
	return strings.TrimSpace(`name:"` + c.name + `" ` + more)
}

// subject returns the subject of error texts: the module's locks.
func (c *config) subject() string {
	if c.name == "" {
		return "the locks"
	}
	return fmt.Sprintf("the locks %q", c.name)
}

// module returns the fx module, with a client and a Locker on the source that from provides.
func (c *config) module(kind string, from fx.Option) fx.Option {
	title := "mortise/" + kind
	if c.name != "" {
		title += "/" + c.name
	}
	return fx.Module(title, from, fx.Provide(
		fx.Annotate(c.client, fx.ParamTags("", c.tag(""), `optional:"true"`, group), fx.ResultTags(c.tag(""))),
		fx.Annotate(c.lockerOf, fx.ParamTags(c.tag("")), fx.ResultTags(c.tag(""))),
	), fx.Options(c.besides()...))
}

func (c *config) besides() (all []fx.Option) {
	for _, m := range c.middleware {
		all = append(all, m.provide(c))
	}
	return all
}

func (c *config) client(
	life fx.Lifecycle, on source, log *slog.Logger, observers []mortise.Observer,
) (*mortise.Client, error) {
	var opts []mortise.ClientOption
	if c.name != "" {
		opts = append(opts, mortise.WithName(c.name))
	}
	if log != nil {
		opts = append(opts, mortise.WithLogger(log))
	}
	if len(observers) > 0 {
		opts = append(opts, mortise.WithObserver(mortise.Observers(observers...)))
	}
	client, err := mortise.New(on.Backend, append(opts, c.options...)...)
	if err != nil {
		return nil, fmt.Errorf("fxmodule: %s: %w", c.subject(), err)
	}
	stop := func(ctx context.Context) error {
		waiting, cancel := early(ctx)
		defer cancel()
		err := client.Shutdown(waiting)
		if on.close != nil {
			err = errors.Join(err, on.close())
		}
		if err != nil {
			return fmt.Errorf("fxmodule: stopping %s: %w", c.subject(), err)
		}
		return nil
	}
	life.Append(fx.Hook{
		OnStart: func(ctx context.Context) error {
			err := client.Ping(ctx)
			if err == nil {
				return nil
			}
			// fx does not call OnStop of a hook whose OnStart failed: shut the client down here.
			over, cancel := context.WithCancel(context.Background())
			cancel()
			stop(over)
			return fmt.Errorf("fxmodule: %s cannot start, their store does not answer: %w", c.subject(), err)
		},
		OnStop: stop,
	})
	return client, nil
}

// early returns a context that ends before ctx's deadline, because fx calls no hook after the deadline. Shutdown may
// return a second later than its context ends, if a handler hangs: of fx's 15 seconds, 1.5 are kept.
func early(ctx context.Context) (context.Context, context.CancelFunc) {
	end, bounded := ctx.Deadline()
	if !bounded {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, end.Add(-min(time.Until(end)/10, 2*time.Second)))
}

func (c *config) lockerOf(client *mortise.Client) (mortise.Locker, error) {
	locker, err := client.Locker(c.locker...)
	if err != nil {
		return nil, fmt.Errorf("fxmodule: %s: %w", c.subject(), err)
	}
	return locker, nil
}
