// Redis tells the quickstart's story on a Redis, with a real process that is really
// killed. It is what `go run ./examples/quickstart -redis ADDRESS` runs.
//
// What it stores has names that begin with "mortise-quickstart-", and is removed at
// the end.
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
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	rueidisclient "github.com/redis/rueidis"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/examples/quickstart/internal/story"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
)

// victimOf is set, to the name of a lock, in the process that is to be killed. Its
// arguments are those of its parent.
const victimOf = "MORTISE_QUICKSTART_VICTIM"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if name := os.Getenv(victimOf); name != "" {
		err = beVictim(ctx, os.Args[1:], name, os.Stdin, os.Stdout)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// config is where the locks live, and through which client.
type config struct {
	addr, client string
	rdb          *goredis.Client // for go-redis locks, and for what an operator does
}

func parse(args []string) (*config, error) {
	c := new(config)
	flags := flag.NewFlagSet("quickstart", flag.ExitOnError)
	flags.StringVar(&c.addr, "redis", "127.0.0.1:6379", "`address` of a Redis")
	flags.StringVar(&c.client, "client", "go-redis", "which Redis client: go-redis or rueidis")
	_ = flags.Parse(args)
	if c.client != "go-redis" && c.client != "rueidis" {
		return nil, fmt.Errorf("-client %s: there are go-redis and rueidis", c.client)
	}
	logging.Disable() // what go-redis would log comes as errors too
	c.rdb = goredis.NewClient(&goredis.Options{Addr: c.addr})
	return c, nil
}

func (c *config) backend() (backend.Backend, error) {
	if c.client == "rueidis" {
		return rueidis.New(rueidisclient.ClientOption{InitAddress: []string{c.addr}}), nil
	}
	return redisgo.New(c.rdb), nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	defer c.rdb.Close()
	b, err := c.backend()
	if err != nil {
		return err
	}
	probe, err := mortise.New(b)
	if err != nil {
		return err
	}
	defer probe.Close()
	if err := probe.Ping(ctx); err != nil {
		return fmt.Errorf("%w; `redis-server` starts one at 127.0.0.1:6379", err)
	}
	return story.Run(ctx, out, story.World{
		Store:     fmt.Sprintf("Redis at %s through %s", c.addr, c.client),
		Prefix:    fmt.Sprintf("mortise-quickstart-%d-", os.Getpid()),
		Backend:   c.backend,
		DeleteHow: "sends DEL for the lock's key",
		Delete:    func(ctx context.Context, name string) error { return c.rdb.Del(ctx, name).Err() },
		Victim:    func(ctx context.Context, name string) (story.Victim, error) { return spawn(ctx, args, name) },
		Forget: func(ctx context.Context, name string) error {
			return c.rdb.Del(ctx, name, "redisson_lock_token:{"+name+"}").Err()
		},
	})
}

// ready is what a victim says once it holds the lock.
const ready = "held"

// spawn starts this program again, as a victim.
func spawn(ctx context.Context, args []string, name string) (story.Victim, error) {
	self, err := os.Executable()
	if err != nil {
		return story.Victim{}, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), victimOf+"="+name)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // ends with this process, and the victim with it
		return story.Victim{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return story.Victim{}, err
	}
	if err := cmd.Start(); err != nil {
		return story.Victim{}, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if strings.TrimSpace(line) != ready {
		_ = cmd.Process.Kill()
		err = errors.Join(err, cmd.Wait())
		return story.Victim{}, fmt.Errorf("the process that is to be killed did not get its lock: %w", err)
	}
	return story.Victim{
		What: fmt.Sprintf("is process %d", cmd.Process.Pid),
		Kill: func() error {
			if err := cmd.Process.Kill(); err != nil {
				return err
			}
			_ = cmd.Wait() // says that it was killed
			return nil
		},
		KillHow: "is killed (SIGKILL)",
	}, nil
}

// beVictim holds a lock until it is killed, or its parent is gone.
func beVictim(ctx context.Context, args []string, name string, in io.Reader, out io.Writer) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	defer c.rdb.Close()
	b, err := c.backend()
	if err != nil {
		return err
	}
	locks, err := mortise.New(b, mortise.WithWatchdogTimeout(story.Watchdog))
	if err != nil {
		return err
	}
	defer locks.Close()
	lease, err := locks.Lock(ctx, name, mortise.WithWait(10*time.Second))
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx)
	fmt.Fprintln(out, ready)
	_, err = io.Copy(io.Discard, in)
	return err
}
