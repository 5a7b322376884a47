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
	"fmt"
	"io"
	"os"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
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

var show = fleet.Show{Name: "cron", Replicas: replicas, Replica: schedule, Watch: watch}

func main() { show.Main() }

// schedule is what a replica does: all of a program that runs a job on one of n.
func schedule(ctx context.Context, store backend.Backend, _ int, say func(string)) error {
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
	tell := fleet.Teller(out)
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
