package interop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/semaphore"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// party is one owner of the random test.
type party interface {
	// take takes a thing of a kind, by Java's name, or enters it again; amount is for semaphores. With
	// wait 0 it does not wait.
	take(kind, name string, amount int, wait, lease time.Duration) (token int64, ok bool, err error)
	// release gives up what was taken last.
	release(kind, name string, amount int) error
	countDown(name string) error
}

type javaParty struct {
	*thread
	permits map[string][]string
}

func (p *javaParty) ask(r request) (reply, error) {
	got := p.client.java.wait(p.start(r), 2*long)
	if got.Error != "" {
		return got, fmt.Errorf("Java, %s %s: %s: %s", r.Op, r.Name, got.Error, got.Message)
	}
	return got, nil
}

func (p *javaParty) take(kind, name string, amount int, wait, lease time.Duration) (int64, bool, error) {
	r := request{Op: "tryLock", Kind: kind, Name: name, Count: amount, Wait: wait.Milliseconds(),
		Lease: lease.Milliseconds()}
	if counted(kind) {
		r.Op = "acquire"
	}
	// A writer's release may reach Redisson just before its thread sleeps, and is lost then. (So it is
	// between Java and Java.)
	if sided := kind == "read" || kind == "write"; sided && wait == long {
		const slice = 3 * time.Second
		for r.Wait = slice.Milliseconds(); wait > slice; wait -= slice {
			if got, err := p.ask(r); got.OK || err != nil {
				return 0, got.OK, err
			}
		}
	}
	got, err := p.ask(r)
	if got.Error == "RedisTimeoutException" && wait < long {
		return 0, false, nil // what a wait that ends while Redisson subscribes may come to
	}
	if got.OK && kind == "permits" {
		p.permits[name] = append(p.permits[name], got.Text)
	}
	return got.Number, got.OK, err
}

func (p *javaParty) release(kind, name string, amount int) error {
	r := request{Op: "unlock", Kind: kind, Name: name, Count: amount}
	if counted(kind) {
		r.Op = "release"
	}
	if held := p.permits[name]; kind == "permits" {
		r.Permit, p.permits[name] = held[len(held)-1], held[:len(held)-1]
	}
	_, err := p.ask(r)
	return err
}

func (p *javaParty) countDown(name string) error {
	_, err := p.ask(request{Op: "countDown", Kind: "latch", Name: name})
	return err
}

type goParty struct {
	client  *golang
	leases  map[string][]*mortise.Lease
	permits map[string][]*semaphore.Permit
}

func (p *goParty) take(kind, name string, amount int, wait, lease time.Duration) (token int64, ok bool, err error) {
	ctx := context.Background()
	if held := p.leases[name]; len(held) > 0 {
		ctx = held[len(held)-1].Context()
	}
	var options []mortise.Option
	if wait > 0 {
		options = append(options, in(wait))
	}
	if lease > 0 && kind != "semaphore" {
		options = append(options, mortise.WithLease(lease))
	}
	u := &goUser{golang: p.client, kind: kind, name: name, amount: amount}
	err = u.acquire(ctx, wait == 0, options...)
	switch {
	case err != nil:
	case kind == "permits":
		p.permits[name] = append(p.permits[name], u.permit)
	case kind != "semaphore":
		p.leases[name] = append(p.leases[name], u.lease)
		token = u.lease.Token()
	}
	switch {
	case errors.Is(err, mortise.ErrNotAcquired), wait > 0 && wait < long && errors.Is(err, mortise.ErrUnavailable):
		// The second: no answer in a wait so short. What the command gets is given back.
		return 0, false, nil
	case err != nil:
		return 0, false, err
	}
	return token, true, nil
}

func (p *goParty) release(kind, name string, amount int) error {
	ctx := context.Background()
	switch kind {
	case "semaphore":
		return semaphore.NewCounting(p.client.Client, name).Release(ctx, amount)
	case "permits":
		held := p.permits[name]
		last := held[len(held)-1]
		p.permits[name] = held[:len(held)-1]
		if err := last.Err(); err != nil {
			return fmt.Errorf("the permit had ended: %w", err)
		}
		if len(held)%2 == 0 {
			return semaphore.New(p.client.Client, name, 0).Release(ctx, last.IDs()[0])
		}
		return last.Release(ctx)
	}
	held := p.leases[name]
	last := held[len(held)-1]
	p.leases[name] = held[:len(held)-1]
	if err := last.Err(); err != nil {
		return fmt.Errorf("the lease had ended: %w", err)
	}
	return last.Unlock(ctx)
}

func (p *goParty) countDown(name string) error {
	return latch.New(p.client.Client, name).CountDown(context.Background())
}

// ledger is where it is written down which owner holds what, outside of Redis: after it
// was confirmed, until before its release is asked for.
type ledger struct {
	mu     sync.Mutex
	rules  map[string]*rule
	taken  int // outermost acquisitions
	handed int // of those, from one of the other language
}

// rule is what must hold of a name.
type rule struct {
	kinds []string // that it is taken by
	total int      // of permits; 0 for a lock

	out      int                       // permits that are out
	holds    map[string]map[string]int // by kind: "read", or "write" for all that excludes, which owner has how many holds
	token    int64
	language byte // of the owner that took it last
}

func excludes(kind string) string {
	if kind == "read" {
		return "read"
	}
	return "write"
}

func (l *ledger) enter(who, kind, name string, amount int, token int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.rules[name]
	if counted(kind) {
		if r.out += amount; r.out > r.total {
			return fmt.Errorf("%s got %d of %s: %d of %d are out", who, amount, name, r.out, r.total)
		}
		l.note(r, who)
		return nil
	}
	outermost := r.holds["read"][who]+r.holds["write"][who] == 0
	for other, n := range r.holds["write"] {
		if n > 0 && other != who {
			return fmt.Errorf("%s got %s to %s, which %s holds", who, name, kind, other)
		}
	}
	if kind != "read" {
		for other, n := range r.holds["read"] {
			if n > 0 && (other != who || r.holds["write"][who] == 0) {
				return fmt.Errorf("%s got %s to %s, which %s reads", who, name, kind, other)
			}
		}
	}
	r.holds[excludes(kind)][who]++
	if !outermost {
		return nil
	}
	l.note(r, who)
	if kind == "fenced" {
		if token <= r.token {
			return fmt.Errorf("%s got %s with token %d, after %d", who, name, token, r.token)
		}
		r.token = token
	}
	return nil
}

func (l *ledger) note(r *rule, who string) {
	l.taken++
	if r.language != 0 && r.language != who[0] {
		l.handed++
	}
	r.language = who[0]
}

func (l *ledger) exit(who, kind, name string, amount int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.rules[name]
	if counted(kind) {
		r.out -= amount
		return
	}
	r.holds[excludes(kind)][who]--
}

func seed() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("INTEROP_SEED"), 10, 64); err == nil {
		return n
	}
	return rand.Uint64()
}

// random: two Java and two Go owners, each a process of its own as far as the store
// can tell, do 1,000 operations on a few names of all kinds.
//
// The kinds that share a record share a name, as far as Redisson allows: its fair waiters are
// not woken by a plain release, so the fair lock has a name to itself.
func random(p *pair) {
	const each = 250
	seed := seed()
	p.Logf("INTEROP_SEED=%d", seed)
	book := &ledger{rules: make(map[string]*rule)}
	var names []string
	for _, r := range []struct {
		name string
		rule
	}{
		{p.name + "/a", rule{kinds: []string{"plain", "fenced"}}},
		{"{" + p.name + "}/b", rule{kinds: []string{"plain", "fenced"}}},
		{p.name + "/fair", rule{kinds: []string{"fair"}}},
		{p.name + "/rw", rule{kinds: []string{"read", "read", "write"}}},
		{p.name + "/semaphore", rule{kinds: []string{"semaphore"}, total: 2}},
		{p.name + "/permits", rule{kinds: []string{"permits"}, total: 2}},
	} {
		r.holds = map[string]map[string]int{"read": {}, "write": {}}
		book.rules[r.name] = &r.rule
		names = append(names, r.name)
		if r.total > 0 {
			p.redisson.thread(p.T, "set").do(request{Op: "set", Kind: r.kinds[0], Name: r.name, Count: r.total})
		}
	}
	counted := p.name + "/latch"
	opener := p.redisson.thread(p.T, "opener")
	opener.do(request{Op: "set", Kind: "latch", Name: counted, Count: 4*each + 1})

	var javas []*redisson
	parties := make(map[string]party)
	all := []string{"java1", "java2", "go1", "go2"}
	for _, who := range all[:2] {
		c := p.java.open(p.T, p.site, who, 0)
		javas = append(javas, c)
		parties[who] = &javaParty{c.thread(p.T, "1"), make(map[string][]string)}
	}
	for _, who := range all[2:] {
		parties[who] = &goParty{p.golang(), make(map[string][]*mortise.Lease), make(map[string][]*semaphore.Permit)}
	}
	waits := []user{p.javaUser(p.redisson, "latch", counted, "waiter"), p.goUser(p.golang(), "latch", counted)}
	for _, u := range waits {
		u.begin()
	}

	start := time.Now()
	var wg sync.WaitGroup
	for i, who := range all {
		wg.Go(func() {
			s := &play{r: rand.New(rand.NewPCG(seed, uint64(i))), who: who, party: parties[who], book: book, names: names,
				latch: counted}
			harness.Checkf(p, s.run(each), "%s", who)
		})
	}
	wg.Wait()
	p.figure(fmt.Sprintf("%d operations, %d acquisitions, %d of them from the other language, in", 4*each, book.taken,
		book.handed), time.Since(start))
	if p.Failed() {
		return
	}
	harness.ErrorIf(p, book.handed < 20, "only %d handovers between Java and Go: this shows little", book.handed)
	// None is stuck.
	for _, name := range names {
		rule := book.rules[name]
		for who, party := range parties {
			for _, kind := range rule.kinds {
				amount, times := max(rule.total, 1), 1
				if kind == "permits" {
					amount, times = times, amount // one at a time
				}
				got := 0
				for range times {
					if _, ok, err := party.take(kind, name, amount, long, 0); !ok {
						p.Errorf("at the end %s cannot take %s by %s: %v", who, name, kind, err)
						break
					}
					got++
				}
				for range got {
					harness.Checkf(p, party.release(kind, name, amount), "at the end %s", who)
				}
			}
		}
		if rule.total > 0 {
			p.gone(name, rule.total)
		}
	}
	// Each has counted down as often as it did something.
	left, err := latch.New(p.golang().Client, counted).Count(context.Background())
	p.agree("the latch", opener.do(request{Op: "count", Kind: "latch", Name: counted}).Number, int(left), err, 1)
	opener.do(request{Op: "countDown", Kind: "latch", Name: counted})
	for _, u := range waits {
		u.woken(time.Now())
	}
	// Some of Java's short waits leave their subscriptions behind.
	for _, c := range javas {
		c.close(p.T)
	}
}

// hold is one that a party has.
type hold struct {
	kind, name string
	amount     int
}

// play is what one party does.
type play struct {
	r     *rand.Rand
	who   string
	party party
	book  *ledger
	names []string
	latch string
	held  []hold // in the order in which they were taken
}

// of are the holds of a name.
func (s *play) of(name string) (all []hold) {
	for _, h := range s.held {
		if h.name == name {
			all = append(all, h)
		}
	}
	return all
}

// run does n operations and gives up what it then holds. It waits only while it holds
// nothing, so that no two wait for each other.
func (s *play) run(n int) error {
	for range n {
		name := s.names[s.r.IntN(len(s.names))]
		has := s.of(name)
		var err error
		switch draw := s.r.IntN(10); {
		case len(s.held) == 0 && draw < 6:
			err = s.take(name, long)
		case len(s.held) == 0 && draw < 8:
			err = s.take(name, time.Duration(1+s.r.IntN(20))*time.Millisecond)
		case len(has) > 0 && (draw < 6 || len(has) == 3):
			err = s.release(name)
		case len(s.held) > 2:
			err = s.release(s.held[s.r.IntN(len(s.held))].name)
		default:
			err = s.take(name, 0)
		}
		if err == nil {
			err = s.party.countDown(s.latch)
		}
		if err != nil {
			return err
		}
	}
	for len(s.held) > 0 {
		if err := s.release(s.held[len(s.held)-1].name); err != nil {
			return err
		}
	}
	return nil
}

func (s *play) take(name string, wait time.Duration) error {
	rule := s.book.rules[name]
	h := hold{rule.kinds[s.r.IntN(len(rule.kinds))], name, 1}
	if h.kind == "semaphore" {
		h.amount += s.r.IntN(rule.total)
	}
	has := s.of(name)
	again := len(has) > 0 && rule.total == 0
	if again && has[0].kind == "read" {
		h.kind = "read" // a reader does not become a writer
	}
	lease := time.Duration(s.r.IntN(2)) * minutes
	if wait > 0 && wait < long {
		if s.who[0] == 'j' {
			// A wait that ends while Redisson subscribes may throw RedisTimeoutException, and
			// leaves the subscription behind for good.
			wait += 500 * time.Millisecond
			if h.kind == "fair" {
				wait = 0 // one of Java's that leaves the queue takes a message with it that was for the next
			}
		}
	}
	if wait == 0 && h.kind == "fair" {
		lease = 0 // then Java does not stand in the queue for a moment, with the same effect
	}
	token, ok, err := s.party.take(h.kind, name, h.amount, wait, lease)
	if err != nil {
		return err
	}
	if !ok {
		if again {
			return fmt.Errorf("%s was not entered again by %s", name, h.kind)
		}
		if wait == long {
			return fmt.Errorf("%s was not to be had by %s in %v, though none holds it for long", name, h.kind, long)
		}
		return nil
	}
	s.held = append(s.held, h)
	return s.book.enter(s.who, h.kind, name, h.amount, token)
}

// release gives up the innermost hold of a name.
func (s *play) release(name string) error {
	for i := len(s.held) - 1; i >= 0; i-- {
		h := s.held[i]
		if h.name != name {
			continue
		}
		s.held = append(s.held[:i], s.held[i+1:]...)
		s.book.exit(s.who, h.kind, name, h.amount)
		err := s.party.release(h.kind, name, h.amount)
		// Without a pause the owner that released it takes it again before another is awake.
		time.Sleep(time.Duration(s.r.IntN(4)) * time.Millisecond)
		return err
	}
	return nil
}
