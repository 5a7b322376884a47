// Package fxmodule puts mortise into an fx application.
//
//	fx.New(
//		fx.Supply(&redis.UniversalOptions{Addrs: []string{"localhost:6379"}}),
//		fxmodule.GoRedis(),
//		fx.Invoke(func(locks mortise.Locker) { ... }),
//	)
//
// A module provides a [mortise.Locker] and the [*mortise.Client] behind the Locker, and middleware
// on request of [HTTP]. There are the modules [GoRedis], [Rueidis] and [Memory], and [Open] for every store that has a
// URL: PostgreSQL, etcd, SQLite, Redis by valkey-go. With [Named], several modules stand in the same graph.
//
// # What it takes from the graph
//
//	*slog.Logger               gets the client's messages to the operator
//	group "mortise.observers"  each a mortise.Observer: see Observe and Telemetry
//	a client or its options    of a named module: under the same name
//	*memory.Store              for Memory; of a named module: under the same name
//	fxmodule.URL               for Open; of a named module: under the same name
//
// All of these are optional except what names the store: [Open] needs a [URL]; [GoRedis] needs exactly one of
// redis.UniversalClient, *redis.Client, *redis.ClusterClient, *redis.UniversalOptions,
// *redis.Options, *redis.FailoverOptions and *redis.ClusterOptions; [Rueidis] needs rueidis.Client
// or rueidis.ClientOption. Several are an error, and so is none. A client from the graph is left
// open at the end; a client made of options is closed.
//
// # Lifecycle
//
// Building the graph does no I/O. OnStart is [mortise.Client.Check]: a wrong address fails the start,
// with an error that names the module and the address, and so does a replica, or a Redis user without a
// permission, whose error has the remedy. OnStop is
// [mortise.Client.Shutdown]: fx first stops the services with a Locker. Shutdown waits for held
// locks. Locks still held at its end are not released under running work, and expire.
//
// Both hooks return before the deadline of fx: they keep a tenth of the time that is left, two seconds
// at most. Once the deadline has passed, fx replaces the error of OnStart by a bare "context deadline
// exceeded", and skips all remaining OnStop hooks.
//
// If a constructor or a function of fx.Invoke fails, fx calls no hook. The module then closes the
// clients that it made for the failed graph, and clients not yet started of other graphs made of the
// same fx.Option; so call GoRedis, Rueidis, Memory or Open once for each application.
package fxmodule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
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
	locker     []mortise.Option
	options    []mortise.ClientOption
	middleware []middleware
	idle       *clients // not started yet
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

// ClientOptions are passed to [mortise.New] or [mortise.Open], after the values from the graph: a watchdog timeout,
// say.
func ClientOptions(opts ...mortise.ClientOption) Option {
	return func(c *config) error {
		c.options = append(c.options, opts...)
		return nil
	}
}

// LockerOptions make the provided Locker the result of [mortise.Client.With] with these options;
// the Client does not change.
func LockerOptions(opts ...mortise.Option) Option {
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
			return source{Backend: store, where: func() string { return "this process" }}
		},
		fx.ParamTags(c.tag(`optional:"true"`)),
		fx.ResultTags(c.tag("")),
	)))
}

// source is the backend of a module's client.
type source struct {
	backend.Backend
	// open makes the client instead of mortise.New; nil for most.
	open func(...mortise.ClientOption) (*mortise.Client, error)
	// where names the store in errors.
	where func() string
	// close closes the Redis client; nil if the module does not close it.
	close func() error
}

func newConfig(opts []Option) (*config, error) {
	c := &config{idle: new(clients)}
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
	), fx.Options(c.besides()...), fx.ErrorHook(c.idle))
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
	for _, o := range observers {
		opts = append(opts, mortise.WithObserver(o))
	}
	open := on.open
	if open == nil {
		open = func(opts ...mortise.ClientOption) (*mortise.Client, error) { return mortise.New(on.Backend, opts...) }
	}
	client, err := open(append(opts, c.options...)...)
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
	c.idle.add(client, stop)
	life.Append(fx.Hook{
		OnStart: func(ctx context.Context) error {
			c.idle.remove(client)
			starting, cancel := early(ctx)
			defer cancel()
			began := time.Now()
			found, err := client.Check(starting)
			if err == nil {
				return nil
			}
			if starting.Err() != nil && ctx.Err() == nil { // no error of the client library, which would name the address
				err = fmt.Errorf("%w: no answer from %s within %v, and fx's start ends before the client library's time-outs: %w",
					mortise.ErrUnavailable, on.where(), time.Since(began).Round(time.Millisecond), err)
			}
			// fx does not call OnStop of a hook whose OnStart failed: shut the client down here.
			abandon(ctx, stop)
			what := "their store does not answer"
			switch {
			case errors.Is(err, mortise.ErrInvalid):
				what = "they have a wrong option"
			case found != nil:
				what = "their store cannot serve them"
			}
			return fmt.Errorf("fxmodule: %s cannot start, %s: %w", c.subject(), what, err)
		},
		OnStop: stop,
	})
	return client, nil
}

// early returns a context that ends before ctx's deadline, because fx calls no hook after the deadline, and hides the
// error of a hook that returns after it. Shutdown may return a second later than its context ends, if a handler hangs:
// of fx's 15 seconds, 1.5 are kept.
func early(ctx context.Context) (context.Context, context.CancelFunc) {
	end, bounded := ctx.Deadline()
	if !bounded {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, end.Add(-min(time.Until(end)/10, 2*time.Second)))
}

// abandon stops a client without a wait for held locks. A client library may close only when its own time-outs are
// over: abandon returns before ctx's deadline, and the rest happens in the background.
func abandon(ctx context.Context, stop func(context.Context) error) {
	waiting, cancel := early(ctx)
	defer cancel()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = stop(over)
	}()
	select {
	case <-stopped:
	case <-waiting.Done():
	}
}

// clients has the stop functions of clients whose OnStart was not called yet.
type clients struct {
	mu   sync.Mutex
	stop map[*mortise.Client]func(context.Context) error
}

func (c *clients) add(client *mortise.Client, stop func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop == nil {
		c.stop = make(map[*mortise.Client]func(context.Context) error)
	}
	c.stop[client] = stop
}

func (c *clients) remove(client *mortise.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.stop, client)
}

// HandleError implements [fx.ErrorHandler]: fx calls it when a graph fails, and then calls no hook.
func (c *clients) HandleError(error) {
	c.mu.Lock()
	failed := c.stop
	c.stop = nil
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, stop := range failed {
		abandon(ctx, stop)
	}
}

func (c *config) lockerOf(client *mortise.Client) mortise.Locker { return client.With(c.locker...) }
