// Cron is a job that one of several replicas runs: the one that holds a lock leads, the others wait
// for it. When the leader is killed, another takes over once its lease has run out.
//
//	go run ./examples/cron
//
// shows three replicas within this process and needs nothing but Go.
//
//	go run ./examples/cron -redis 127.0.0.1:6379 -client go-redis
//	go run ./examples/cron -redis 127.0.0.1:6379 -client rueidis
//
// does the same with three processes on a Redis, and kills the leader with SIGKILL. It leaves one key there,
// the fencing token's counter. It exits with 1 if two replicas led at once.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	gorueidis "github.com/redis/rueidis"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
)

const (
	job      = "cron:report"          // the lock's name
	every    = 200 * time.Millisecond // how often the job runs
	watchdog = 2 * time.Second        // how long a dead leader holds the others up
	replicas = 3
	leaders  = 3 // the show is over when so many have led
	runs     = 4 // of the job, before a leader is killed
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
	switch {
	case redis == "":
		return show(ctx, out, inProcess(memory.New()))
	case client != "go-redis" && client != "rueidis":
		return fmt.Errorf("-client %q: it is go-redis or rueidis", client)
	case replica > 0:
		return lead(ctx, dial(redis, client), replica, func(line string) { fmt.Fprintln(out, line) })
	}
	return show(ctx, out, inProcesses("-redis", redis, "-client", client))
}

func dial(addr, client string) backend.Backend {
	if client == "rueidis" {
		return rueidis.New(gorueidis.ClientOption{InitAddress: []string{addr}})
	}
	return redisgo.New(goredis.NewClient(&goredis.Options{Addr: addr}))
}

// lead is what a replica does: all of a program that runs a job on one of n.
func lead(ctx context.Context, store backend.Backend, replica int, say func(string)) error {
	client, err := mortise.New(store, mortise.WithWatchdogTimeout(watchdog))
	if err != nil {
		return err
	}
	// ctx is how this program dies: at once, and without giving back what it holds.
	defer func() { client.Shutdown(ctx) }()
	locks, err := client.Locker(mortise.Fenced())
	if err != nil {
		return err
	}
	for {
		lease, err := locks.Lock(ctx, job) // waits until this replica is the leader
		if errors.Is(err, mortise.ErrUnavailable) {
			say(fmt.Sprintf("%d 0 cannot reach the store, tries again: %v", replica, err))
			continue
		} else if err != nil {
			return err
		}
		token, _ := lease.Token()
		for tick := time.NewTicker(every); lease.Context().Err() == nil; {
			select {
			case <-tick.C:
				if lease.Err() == nil { // the job itself; it sends the token along with what it writes
					say(fmt.Sprintf("%d %d ran the job", replica, token))
				}
			case <-lease.Context().Done(): // lost, or the program ends
				tick.Stop()
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		lease.Unlock(ctx)
	}
}

// starter starts replica n: it says lines until ctx ends, which kills it at once, and then closes done.
type starter func(ctx context.Context, n int, say func(line string), done chan<- struct{}) error

func inProcess(store *memory.Store) starter {
	return func(ctx context.Context, n int, say func(string), done chan<- struct{}) error {
		go func() {
			defer close(done)
			lead(ctx, store, n, say)
		}()
		return nil
	}
}

func inProcesses(args ...string) starter {
	return func(ctx context.Context, n int, say func(string), done chan<- struct{}) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, self, append(args, "-replica", strconv.Itoa(n))...) // its end is a SIGKILL
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		go func() {
			defer close(done)
			for lines := bufio.NewScanner(out); lines.Scan(); {
				say(lines.Text())
			}
			cmd.Wait()
		}()
		return nil
	}
}

// show starts the replicas, kills leaders, and checks that there was one at a time.
func show(ctx context.Context, out io.Writer, start starter) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("a minute is over"))
	lines := make(chan string)
	kill := make(map[int]func())
	defer func() {
		cancel()
		for _, k := range kill {
			k()
		}
	}()
	for n := 1; n <= replicas; n++ {
		life, end := context.WithCancel(ctx)
		say := func(line string) {
			select {
			case lines <- line:
			case <-life.Done():
			}
		}
		done := make(chan struct{})
		if err := start(life, n, say, done); err != nil {
			end()
			return err
		}
		kill[n] = func() { end(); <-done }
	}

	begin := time.Now()
	tell := func(format string, args ...any) {
		fmt.Fprintf(out, "%5.1fs  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
	tell("%d replicas want to run %q every %v", replicas, job, every)
	var (
		leader, ran, led int
		newest           int64
	)
	for {
		var words []string
		select {
		case line := <-lines:
			words = strings.SplitN(line, " ", 3)
		case <-ctx.Done():
			return fmt.Errorf("%d of %d leaders were seen: %w", led, leaders, context.Cause(ctx))
		}
		if len(words) < 3 {
			return fmt.Errorf("a replica said %q", words)
		}
		n, _ := strconv.Atoi(words[0])
		token, _ := strconv.ParseInt(words[1], 10, 64)
		switch {
		case token == 0: // it does not lead
			tell("replica %d %s", n, words[2])
			continue
		case token > newest:
			newest, leader, ran, led = token, n, 0, led+1
			tell("replica %d leads, its token is %d", n, token)
		case token < newest: // it was stopped between its look at the lease and the write
			tell("replica %d is refused: its token %d is older than %d", n, token, newest)
			continue
		case n != leader:
			return fmt.Errorf("replicas %d and %d both lead, with token %d", n, leader, token)
		}
		ran++
		tell("replica %d %s", n, words[2])
		switch {
		case ran < runs:
		case led >= leaders: // one that was slow may have led twice
			tell("%d leaders, one at a time", led)
			return nil
		default:
			tell("replica %d is killed; its lease of %v runs out, then another leads", n, watchdog)
			kill[n]()
			delete(kill, n)
		}
	}
}
