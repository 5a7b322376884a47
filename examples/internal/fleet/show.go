package fleet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

// Show is an example: replicas of a program, and the check of what they say.
type Show struct {
	Name     string
	Replicas int
	Replica  func(ctx context.Context, store backend.Backend, n int, say func(line string)) error
	Watch    func(out io.Writer, all *Fleet) error
}

// Main is the main function of an example.
func (s Show) Main() {
	redis := flag.String("redis", "", "`address` of a Redis, such as 127.0.0.1:6379; without it everything is in memory")
	client := flag.String("client", "go-redis", "which Redis client: go-redis or rueidis")
	replica := flag.Int("replica", 0, "be this replica; for the program itself")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := s.Run(ctx, *redis, *client, *replica, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", s.Name, err)
		os.Exit(1)
	}
}

// Run starts the replicas and watches them; or, if replica is not zero, is one of them.
func (s Show) Run(ctx context.Context, redis, client string, replica int, out io.Writer) error {
	show, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("a minute is over"))
	defer cancel()
	if redis == "" {
		store := memory.New()
		return s.Watch(out, Goroutines(show, s.Replicas, func(ctx context.Context, n int, say func(string)) error {
			return s.Replica(ctx, store, n, say)
		}))
	}
	store, err := Dial(redis, client)
	if err != nil {
		return err
	}
	if replica > 0 {
		return s.Replica(ctx, store, replica, func(line string) { fmt.Fprintln(out, line) })
	}
	processes, err := Processes(show, s.Replicas, "-redis", redis, "-client", client)
	if err != nil {
		return err
	}
	return s.Watch(out, processes)
}

// Teller writes lines to out, each with the seconds since Teller was called.
func Teller(out io.Writer) (tell func(format string, args ...any)) {
	begin := time.Now()
	return func(format string, args ...any) {
		fmt.Fprintf(out, "%5.1fs  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
}
