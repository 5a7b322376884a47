package redisproto

import (
	"sync"
	"time"
)

// pictureSize bounds the picture: some 20 MB with names of 64 bytes.
const pictureSize = 100_000

// doubtFor is how long a release with an unknown outcome keeps its name out of the
// picture. Client libraries give up a silent connection sooner.
const doubtFor = time.Minute

// picture is what a session believes that others hold, for refusing without asking.
// It is filled by refused acquires and kept true by invalidations. It may lag
// behind by the length of an invalidation's trip, and then refuses wrongly. It never
// grants.
//
// Two races shape it:
//
//   - The reply of a refused acquire goes to the goroutine that sent it, invalidations
//     go to another. The lock may be freed, and the invalidation be handled, before
//     that goroutine gets to write "held" down; nothing would ever correct it.
//     So whoever asks the server says so beforehand (look), and what it learned
//     counts only if no invalidation of the name was handled since.
//   - Tracking is switched on with NOLOOP: the server does not tell a connection of
//     its own writes. So a session's own releases are handled as invalidations,
//     when their reply arrives; and a release whose outcome is unknown keeps the
//     name out of the picture for a while (doubt).
//
// The methods may be called concurrently. They cost one mutex and some map
// operations; a name leaves nothing behind once it is invalidated or expired.
type picture struct {
	max int

	mu      sync.Mutex
	entries map[string]entry
	looks   map[string]looking
	// seq counts invalidations; all is its value at the last one for all names.
	seq, all uint64
}

// entry is what is believed of a name.
type entry struct {
	until   time.Time // zero: without end
	doubted bool      // nothing may be believed of it until then
}

// looking stands for the acquires of a name that are on their way.
type looking struct {
	count       int
	invalidated uint64 // seq of the name's last invalidation since count was zero
}

// look is one acquire on its way.
type look struct {
	name  string
	since uint64
}

func newPicture(max int) *picture {
	return &picture{max: max, entries: map[string]entry{}, looks: map[string]looking{}}
}

// held tells whether name is believed to be held, and for how long yet; negative
// if without end.
func (p *picture) held(name string, now time.Time) (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.entries[name]
	switch {
	case !ok || e.doubted:
		return 0, false
	case e.until.IsZero():
		return -1, true
	case !now.Before(e.until):
		delete(p.entries, name)
		return 0, false
	}
	return max(e.until.Sub(now).Round(time.Millisecond), time.Millisecond), true
}

// look is called before an acquire is sent. One of the learn methods must follow.
func (p *picture) look(name string) look {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.looks[name]
	l.count++
	p.looks[name] = l
	return look{name: name, since: p.seq}
}

func (p *picture) learnNothing(l look) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(l)
}

// learnFree says that the acquire was granted: nobody else holds the name.
func (p *picture) learnFree(l look) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(l)
	p.forgetEntry(l.name)
}

// learnHeld says that the acquire which was sent at that time was refused for the
// time that remained (negative: without end).
func (p *picture) learnHeld(l look, sent time.Time, remaining time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if overtaken := p.end(l); overtaken {
		return
	}
	e := entry{}
	if remaining >= 0 {
		e.until = sent.Add(remaining)
	}
	p.put(l.name, e, sent)
}

// end takes l off the acquires on their way, and tells whether an invalidation
// was handled meanwhile.
func (p *picture) end(l look) (overtaken bool) {
	now := p.looks[l.name]
	overtaken = now.invalidated > l.since || p.all > l.since
	if now.count--; now.count > 0 {
		p.looks[l.name] = now
	} else {
		delete(p.looks, l.name)
	}
	return overtaken
}

// forget handles an invalidation of name, or the session's own write.
func (p *picture) forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetEntry(name)
}

func (p *picture) forgetEntry(name string) {
	p.forgetLocked(name)
	if e, ok := p.entries[name]; ok && !e.doubted {
		delete(p.entries, name)
	}
}

func (p *picture) forgetLocked(name string) {
	p.seq++
	if l, ok := p.looks[name]; ok {
		l.invalidated = p.seq
		p.looks[name] = l
	}
}

// forgetAll handles an invalidation of everything: a flush, or a lost connection,
// on which no release is on its way any more either.
func (p *picture) forgetAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq++
	p.all = p.seq
	p.entries = map[string]entry{}
}

// doubt keeps name out of the picture, for a release of ours may still arrive.
func (p *picture) doubt(name string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetLocked(name)
	p.put(name, entry{until: now.Add(doubtFor), doubted: true}, now)
}

// put writes an entry down, for which it looks at a few others and drops those
// that are over, so that entries which nobody asks for again go too.
func (p *picture) put(name string, e entry, now time.Time) {
	if old, ok := p.entries[name]; ok {
		if old.doubted && now.Before(old.until) && !e.doubted {
			return
		}
		p.entries[name] = e
		return
	}
	seen := 0
	for n, old := range p.entries {
		full := len(p.entries) >= p.max
		over := !old.until.IsZero() && !now.Before(old.until)
		if over || full && !old.doubted {
			delete(p.entries, n)
		}
		if seen++; seen >= 4 && len(p.entries) < p.max || seen >= 32 {
			break
		}
	}
	if len(p.entries) < p.max {
		p.entries[name] = e
	}
}
