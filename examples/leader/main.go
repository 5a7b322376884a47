// Leader is a job that one of several replicas runs: the leader. The others know which one leads,
// and take over when it stops or dies.
//
//	go run ./examples/leader
//
// shows three replicas within this process, and needs nothing but Go.
//
//	go run ./examples/leader -redis 127.0.0.1:6379 -client go-redis
//	go run ./examples/leader -redis 127.0.0.1:6379 -client rueidis
//
// does the same with three processes on a Redis, and kills the leader with SIGKILL. It leaves two
// keys there: the counter of terms, and the last leader's identity, which expires. It exits with 1
// if two replicas led at once.
package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/examples/internal/fleet"
	"github.com/mortise-go/mortise/leader"
)

const (
	name     = "leader:report"
	every    = 200 * time.Millisecond // how often the leader does its work
	watchdog = 2 * time.Second        // how long a leader that was killed holds the others up
	replicas = 3
	leaders  = 3 // the show is over when so many have led
	runs     = 4 // of the job, before a leader is killed
)

var show = fleet.Show{Name: "leader", Replicas: replicas, Replica: lead, Watch: watch}

func main() { show.Main() }

// lead is what a replica does: all of a program that leads at times, and follows at others.
func lead(ctx context.Context, store backend.Backend, replica int, say func(string)) error {
	client, err := mortise.New(store, mortise.WithWatchdogTimeout(watchdog))
	if err != nil {
		return err
	}
	defer client.Close()
	go func() {
		for l, err := range leader.Observe(ctx, client, name) {
			if err == nil && l.Identity != "" {
				say(fmt.Sprintf("follow %d %s", l.Term, l.Identity))
			}
		}
	}()
	err = leader.Run(ctx, client, name, func(ctx context.Context, term leader.Term) error {
		for {
			select {
			case <-time.After(every):
				if term.Err() == nil { // the job itself; it sends the token along with what it writes
					say(fmt.Sprintf("lead %d %s", term.Token, term.Identity))
				}
			case <-ctx.Done(): // leadership is lost, or the program ends
				return ctx.Err()
			}
		}
	}, leader.Identity(fmt.Sprint("replica-", replica))) // an address, in a program
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// watch kills leaders, and checks that there is one at a time.
func watch(out io.Writer, all *fleet.Fleet) error {
	defer all.Close()
	tell := fleet.Teller(out)
	tell("%d replicas want to lead %q", replicas, name)
	var (
		ran, led, leads int
		newest          int64
		known           = make(map[string]bool)
	)
	for {
		line, err := all.Next()
		if err != nil {
			return fmt.Errorf("%d of %d leaders were seen: %w", led, leaders, err)
		}
		var what, identity string
		var term int64
		if _, err := fmt.Sscan(line.Text, &what, &term, &identity); err != nil {
			return fmt.Errorf("replica %d said %q", line.Replica, line.Text)
		}
		switch {
		case what == "follow":
			if key := fmt.Sprint(line.Replica, term); !known[key] {
				known[key] = true
				tell("replica %d knows that %s leads, in term %d", line.Replica, identity, term)
			}
			continue
		case term > newest:
			newest, leads, ran, led = term, line.Replica, 0, led+1
			tell("replica %d leads, its term is %d", leads, term)
		case term < newest: // it was stopped between its look at the term and the write
			tell("replica %d is refused: its term %d is older than %d", line.Replica, term, newest)
			continue
		case line.Replica != leads:
			return fmt.Errorf("replicas %d and %d both lead, in term %d", line.Replica, leads, term)
		}
		ran++
		tell("replica %d ran the job", leads)
		switch {
		case ran < runs:
		case led >= leaders: // one that was slow may have led twice
			tell("%d leaders, one at a time", led)
			return nil
		default:
			tell("replica %d is killed", leads)
			all.Kill(leads)
		}
	}
}
