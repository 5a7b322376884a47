// Cron is a job that runs at fixed times in one of several replicas: each tick is started once,
// whatever the replicas' clocks say, and whichever of them dies.
//
//	go run ./examples/cron
//
// shows three replicas within this process, and needs nothing but Go.
//
//	go run ./examples/cron -redis 127.0.0.1:6379 -client go-redis
//	go run ./examples/cron -redis 127.0.0.1:6379 -client rueidis
//
// does the same with three processes on a Redis, and kills two of them with SIGKILL. It leaves one
// key there, which expires. It exits with 1 if a tick was started twice.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/examples/internal/fleet"
	"github.com/mortise-go/mortise/once"
)

const (
	name     = "cron:report"
	every    = 200 * time.Millisecond // a minute, in a program
	replicas = 3
	ticks    = 15 // the show is over when so many were started
	life     = 5  // ticks until the replica that started the last one is killed; the last replica is not
)

func main() {
	redis := flag.String("redis", "", "`address` of a Redis, such as 127.0.0.1:6379; without it everything is in memory")
	client := flag.String("client", "go-redis", "which Redis client: go-redis or rueidis")
	replica := flag.Int("replica", 0, "be this replica; for the program itself")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *redis, *client, *replica, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cron:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, redis, client string, replica int, out io.Writer) error {
	show, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("a minute is over"))
	defer cancel()
	if redis == "" {
		store := memory.New()
		return watch(out, fleet.Goroutines(show, replicas, func(ctx context.Context, _ int, say func(string)) error {
			return schedule(ctx, store, say)
		}))
	}
	store, err := fleet.Dial(redis, client)
	if err != nil {
		return err
	}
	if replica > 0 {
		return schedule(ctx, store, func(line string) { fmt.Fprintln(out, line) })
	}
	processes, err := fleet.Processes(show, replicas, "-redis", redis, "-client", client)
	if err != nil {
		return err
	}
	return watch(out, processes)
}

// schedule is what a replica does: all of a program that runs a job on one of n.
func schedule(ctx context.Context, store backend.Backend, say func(string)) error {
	client, err := mortise.New(store)
	if err != nil {
		return err
	}
	defer client.Close()
	err = once.Every(ctx, client, name, every, func(_ context.Context, at time.Time) {
		say(fmt.Sprint(at.UnixMilli())) // the job itself
	}, once.OnError(func(err error) { fmt.Fprintln(os.Stderr, err) }))
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// watch kills replicas, and checks that no tick is started twice.
func watch(out io.Writer, all *fleet.Fleet) error {
	defer all.Close()
	begin := time.Now()
	tell := func(format string, args ...any) {
		fmt.Fprintf(out, "%5.1fs  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
	tell("%d replicas run %q every %v", replicas, name, every)
	started := make(map[int64]int) // by which replica
	for alive := replicas; len(started) < ticks; {
		line, err := all.Next()
		if err != nil {
			return fmt.Errorf("%d of %d ticks were started: %w", len(started), ticks, err)
		}
		var ms int64
		if _, err := fmt.Sscan(line.Text, &ms); err != nil {
			return fmt.Errorf("replica %d said %q", line.Replica, line.Text)
		}
		at := time.UnixMilli(ms).UTC().Format("15:04:05.000")
		if by, twice := started[ms]; twice {
			return fmt.Errorf("replicas %d and %d both started the tick of %s", by, line.Replica, at)
		}
		started[ms] = line.Replica
		tell("replica %d starts the tick of %s", line.Replica, at)
		if len(started)%life == 0 && alive > 1 {
			tell("replica %d is killed", line.Replica)
			all.Kill(line.Replica)
			alive--
		}
	}
	tell("%d ticks, each started once", len(started))
	return nil
}
