// Package fleet starts replicas of an example, as processes or within one, and kills them.
package fleet

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"

	goredis "github.com/redis/go-redis/v9"
	gorueidis "github.com/redis/rueidis"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
)

// Dial is a backend on a Redis, by "go-redis" or "rueidis".
func Dial(addr, client string) (backend.Backend, error) {
	switch client {
	case "go-redis":
		return redisgo.New(goredis.NewClient(&goredis.Options{Addr: addr})), nil
	case "rueidis":
		return rueidis.New(gorueidis.ClientOption{InitAddress: []string{addr}}), nil
	}
	return nil, fmt.Errorf("-client %q: it is go-redis or rueidis", client)
}

// Replica is what the n-th replica does until ctx ends. It says what happens in lines.
type Replica func(ctx context.Context, n int, say func(line string)) error

// Line is what a replica said.
type Line struct {
	Replica int // from one
	Text    string
}

// Fleet is replicas.
type Fleet struct {
	ctx   context.Context
	lines chan Line
	kill  map[int]func()
}

// Goroutines starts n replicas within this process. To kill one ends its ctx.
func Goroutines(ctx context.Context, n int, run Replica) *Fleet {
	f := &Fleet{ctx, make(chan Line), make(map[int]func())}
	for i := 1; i <= n; i++ {
		life, end := context.WithCancel(ctx)
		var replica sync.WaitGroup
		replica.Go(func() {
			if err := run(life, i, func(line string) { f.say(life, i, line) }); err != nil {
				f.say(life, i, err.Error())
			}
		})
		f.kill[i] = func() { end(); replica.Wait() }
	}
	return f
}

// Processes starts n replicas as processes: this program, with these arguments and "-replica" and a
// number. To kill one is SIGKILL.
func Processes(ctx context.Context, n int, args ...string) (*Fleet, error) {
	f := &Fleet{ctx, make(chan Line), make(map[int]func())}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for i := 1; i <= n; i++ {
		life, end := context.WithCancel(ctx)
		cmd := exec.CommandContext(life, self, append(args, "-replica", strconv.Itoa(i))...)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			end()
			f.Close()
			return nil, err
		}
		var process sync.WaitGroup
		process.Go(func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				f.say(life, i, lines.Text())
			}
			cmd.Wait()
		})
		f.kill[i] = func() { end(); process.Wait() }
	}
	return f, nil
}

func (f *Fleet) say(life context.Context, replica int, text string) {
	select {
	case f.lines <- Line{replica, text}:
	case <-life.Done():
	}
}

// Next is what a replica says next.
func (f *Fleet) Next() (Line, error) {
	select {
	case line := <-f.lines:
		return line, nil
	case <-f.ctx.Done():
		return Line{}, context.Cause(f.ctx)
	}
}

// Kill kills a replica, and returns when it has ended.
func (f *Fleet) Kill(replica int) {
	if kill := f.kill[replica]; kill != nil {
		kill()
		delete(f.kill, replica)
	}
}

// Close kills all replicas.
func (f *Fleet) Close() {
	for replica := range f.kill {
		f.Kill(replica)
	}
}
