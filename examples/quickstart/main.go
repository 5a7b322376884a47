// Quickstart shows a distributed lock at work, in some ten seconds:
//
//	go run ./examples/quickstart
//
// needs nothing but Go: the store is in this process, and other clients of it stand
// for other processes.
//
//	go run ./examples/quickstart -redis 127.0.0.1:6379 -client go-redis
//	go run ./examples/quickstart -redis 127.0.0.1:6379 -client rueidis
//
// do the same on a Redis, with real processes. Those two run the program in the
// folder redis below, which is apart so that the first one does not have to
// download and compile two Redis clients.
//
// It exits with 1 if a step did not do what it claims.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/examples/quickstart/internal/story"
)

func main() {
	redis := flag.String("redis", "", "`address` of a Redis, such as 127.0.0.1:6379; without it the store is in memory")
	client := flag.String("client", "go-redis", "which Redis client: go-redis or rueidis")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *redis != "" {
		err = onRedis(ctx, "-redis", *redis, "-client", *client)
	} else {
		err = story.Run(ctx, os.Stdout, inMemory())
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) { // the other program has said why
		os.Exit(1)
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func onRedis(ctx context.Context, args ...string) error {
	const program = "github.com/mortise-go/mortise/examples/quickstart/redis"
	cmd := exec.CommandContext(ctx, "go", append([]string{"run", program}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return nil } // it gets the interrupt itself
	return cmd.Run()
}

func inMemory() story.World {
	store := memory.New()
	return story.World{
		Store:     "an in-process store (-redis 127.0.0.1:6379 for a real one)",
		Backend:   func() (backend.Backend, error) { return store, nil },
		DeleteHow: "deletes the lock's record from the store",
		Delete:    func(_ context.Context, name string) error { store.Delete(name); return nil },
		Victim:    func(ctx context.Context, name string) (story.Victim, error) { return standIn(ctx, store, name) },
		Forget:    func(context.Context, string) error { return nil },
	}
}

// standIn is a holder that can be killed though no other process shares a store in
// memory: a bare session, and a loop that renews as a client's watchdog would. To kill
// it is to end the loop and nothing else: no Unlock follows.
func standIn(ctx context.Context, store backend.Backend, name string) (story.Victim, error) {
	session, err := store.Open(deaf{})
	if err != nil {
		return story.Victim{}, err
	}
	const owner = "stand-in:1"
	reply, err := session.Acquire(ctx, backend.AcquireRequest{Name: name, Owner: owner, Lease: story.Watchdog})
	if err == nil && !reply.Granted {
		err = errors.New("the stand-in did not get the lock")
	}
	if err != nil {
		return story.Victim{}, err
	}
	renew := time.NewTicker(story.Watchdog / 3)
	dead := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-renew.C:
				out := make([]backend.RenewResult, 1)
				session.Renew(ctx, []backend.RenewRequest{{Name: name, Owner: owner, Lease: story.Watchdog}}, out)
			case <-dead:
				return
			}
		}
	})
	return story.Victim{
		What: "(simulated: a session of the store, in this process)",
		Kill: func() error {
			renew.Stop()
			close(dead)
			wg.Wait()
			return session.Close()
		},
		KillHow: "(simulated: its renewals stop, nothing is unlocked)",
	}, nil
}

// deaf is a session's handler that listens to nothing.
type deaf struct{}

func (deaf) Watching(backend.Topic) {}
func (deaf) Released(backend.Topic) {}
func (deaf) Changed(backend.Topic)  {}
func (deaf) ChangedAll()            {}
