//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/semaphore"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// handmade is a lock of the kind that is written in an afternoon. It is right, but for
// what the configuration says is wrong with it.
type handmade struct {
	workerConfig
	rdb   goredis.UniversalClient
	book  *harness.Ledger
	local sync.Map // of *sync.Mutex, by name
}

// The one that is right, and how it can be broken.
const (
	rightLock         = "right"
	endlessBelief     = "believes in its lease after its end"
	deletesAnybodys   = "unlocks by DEL, whatever the holder"
	checksThenDeletes = "checks the owner and deletes in two steps"
	renewsTheLost     = "renews what it has lost"
	repeatsTokens     = "gives a token out twice"
	setsWithoutNX     = "SET without NX"
	localOnly         = "excludes its own process only"
	wakesWithoutTry   = "a waiter that is woken believes that it is the holder"
	neverExpires      = "a record without an expiry"
	renewsAfterUnlock = "a watchdog that outlives Unlock"
	waitsForTheDead   = "a queue in which the dead keep their places"
)

const briefly = 200 * time.Millisecond

var (
	takeScript = goredis.NewScript(`
if redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]) then return redis.call('incr', KEYS[2]) end
return 0`)
	dropScript = goredis.NewScript(`
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0`)
	// In the order in which they came.
	queueScript = goredis.NewScript(`
if not redis.call('lpos', KEYS[3], ARGV[1]) then redis.call('rpush', KEYS[3], ARGV[1]) end
if redis.call('lindex', KEYS[3], 0) == ARGV[1] and redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]) then
  redis.call('lpop', KEYS[3])
  return redis.call('incr', KEYS[2])
end
return 0`)
	renewScript = goredis.NewScript(`
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end
return 0`)
)

func newHandmade(c workerConfig, book *harness.Ledger) locker {
	return &handmade{workerConfig: c, rdb: c.Site.Universal(), book: book}
}

func (m *handmade) close(context.Context) error { return m.rdb.Close() }

// taken is a lease of a handmade lock.
type taken struct {
	m           *handmade
	name, owner string
	token       int64
	stop        chan struct{}
	done        chan struct{}

	mu    sync.Mutex
	until time.Time
	over  bool
}

func (m *handmade) take(ctx context.Context, name string, w want) (lease, error) {
	d := m.Lease
	if w.lease > 0 {
		d = w.lease
	}
	if m.Lock == checksThenDeletes {
		d = min(d, briefly)
	}
	t := &taken{m: m, name: name, owner: fmt.Sprint(os.Getpid(), "-", rand.Int64()), stop: make(chan struct{}),
		done: make(chan struct{})}
	if m.Lock == waitsForTheDead {
		defer m.rdb.LRem(context.Background(), t.queue(), 0, t.owner)
	}
	for began := time.Now(); ; {
		sent := time.Now()
		ok, err := m.ask(ctx, t, d)
		if err == nil && ok {
			t.until = sent.Add(d - max(10*time.Millisecond, d/100))
			break
		}
		if err == nil && (w.try || w.wait > 0 && time.Since(began) > w.wait) {
			return nil, mortise.ErrNotAcquired
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(2*time.Millisecond + rand.N(4*time.Millisecond)):
		}
		if err == nil && m.Lock == wakesWithoutTry && m.rdb.Exists(ctx, name).Val() == 0 { // it was released
			t.until = time.Now().Add(d)
			break
		}
	}
	if !w.fenced {
		t.token = 0
	}
	go t.watch(d, w.lease == 0)
	return t, nil
}

func (t *taken) queue() string { return "queue:{" + t.name + "}" }

// ask tries once.
func (m *handmade) ask(ctx context.Context, t *taken, d time.Duration) (bool, error) {
	counter := "token:{" + t.name + "}"
	switch m.Lock {
	case localOnly:
		held, _ := m.local.LoadOrStore(t.name, new(sync.Mutex))
		if !held.(*sync.Mutex).TryLock() {
			return false, nil
		}
		return true, nil
	case setsWithoutNX:
		return true, m.rdb.Set(ctx, t.name, t.owner, d).Err()
	}
	script, keys := takeScript, []string{t.name, counter}
	if m.Lock == waitsForTheDead {
		script, keys = queueScript, append(keys, t.queue())
	}
	n, err := script.Run(ctx, m.rdb, keys, t.owner, d.Milliseconds()).Int64()
	if err != nil || n == 0 {
		return false, err
	}
	t.token = n
	if m.Lock == repeatsTokens && n > 1 && rand.IntN(20) == 0 {
		t.token--
	}
	if m.Lock == neverExpires {
		return true, m.rdb.Persist(ctx, t.name).Err()
	}
	return true, nil
}

// watch renews the lease.
func (t *taken) watch(d time.Duration, renewed bool) {
	defer close(t.done)
	ctx := context.Background()
	forgets := t.m.Lock == renewsAfterUnlock && rand.IntN(50) == 0
	for renewed || forgets {
		stop := t.stop
		if forgets {
			stop = nil
		}
		select {
		case <-stop:
			return
		case <-time.After(d / 3):
		}
		if forgets {
			if t.m.book.Stop.Load() != 0 {
				return
			}
			t.m.rdb.Set(ctx, t.name, t.owner, d)
			continue
		}
		sent := time.Now()
		n, err := renewScript.Run(ctx, t.m.rdb, []string{t.name}, t.owner, d.Milliseconds()).Int64()
		if err == nil && n == 1 {
			t.extend(sent.Add(d - max(10*time.Millisecond, d/100)))
		}
	}
}

func (t *taken) extend(until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Now().Before(t.until) {
		t.until = until
	}
}

func (t *taken) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over && t.m.Lock == renewsTheLost && !time.Now().Before(t.until) {
		if t.m.rdb.Set(context.Background(), t.name, t.owner, t.m.Lease).Err() == nil {
			t.until = time.Now().Add(t.m.Lease)
		}
	}
	if !t.over && (t.m.Lock == endlessBelief || t.m.Lock == neverExpires || t.m.Lock == localOnly ||
		time.Now().Before(t.until)) {
		return nil
	}
	return mortise.ErrLost
}

func (t *taken) Token() int64 { return t.token }

func (t *taken) Unlock(ctx context.Context) error {
	lost := t.Err()
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	close(t.stop)
	m := t.m
	var n int64
	var err error
	switch m.Lock {
	case localOnly:
		held, _ := m.local.Load(t.name)
		held.(*sync.Mutex).Unlock()
		n = 1
	case deletesAnybodys:
		n, err = m.rdb.Del(ctx, t.name).Result()
	case checksThenDeletes:
		var owner string
		if owner, err = m.rdb.Get(ctx, t.name).Result(); err == nil && owner == t.owner {
			if rand.IntN(20) == 0 { // a pause of the collector's
				time.Sleep(briefly + briefly/4)
			}
			n, err = m.rdb.Del(ctx, t.name).Result()
		}
		if errors.Is(err, goredis.Nil) {
			err = nil
		}
	default:
		n, err = dropScript.Run(ctx, m.rdb, []string{t.name}, t.owner).Int64()
	}
	switch {
	case lost != nil || err == nil && n == 0:
		return mortise.ErrLost
	case err != nil:
		return err
	}
	return nil
}

// Mortise, with something wrong with one of its kinds.
const (
	readsBeside  = "a reader that is let in beside a writer"
	writesBeside = "a writer that is let in beside readers"
	onePermitToo = "a permit more than were made"
	givesTwice   = "a permit that is given back twice"
)

var mutants = []string{readsBeside, writesBeside, onePermitToo, givesTwice}

type mutated struct {
	*mortises
	how string
}

func (m *mutated) take(ctx context.Context, name string, w want) (lease, error) {
	switch {
	case m.how == readsBeside && w.reads && rand.IntN(20) == 0:
		name += ":readers" // another record than the writers'
	case m.how == writesBeside && w.shape == harness.ReadWrite && !w.reads && rand.IntN(20) == 0:
		w.reads = true
	case m.how == onePermitToo && w.shape == harness.Permits:
		if _, err := semaphore.New(m.client, name, 0).TrySetPermits(ctx, permitsMade+1); err != nil {
			return nil, err
		}
	}
	l, err := m.mortises.take(ctx, name, w)
	if err == nil && m.how == givesTwice && w.shape == harness.Permits && rand.IntN(20) == 0 {
		return twice{l, semaphore.New(m.client, name, 0)}, nil
	}
	return l, err
}

// twice is a permit that is given back twice.
type twice struct {
	lease
	semaphore *semaphore.Semaphore
}

func (t twice) Unlock(ctx context.Context) error {
	err := t.lease.Unlock(ctx)
	if err == nil {
		err = t.semaphore.AddPermits(ctx, 1)
	}
	return err
}
