package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// A Name as bytes: the version, sections in the order of their numbers, a checksum. A section is a number, a length and
// as many bytes. Numbers are varints; texts have their length before them. A session has its eight bytes once, in the
// section of sessions; elsewhere it is its place there.
//
// A version keeps the sections that it does not know, and ignores further fields of those that it knows. A section that
// changes otherwise gets another number; a change that an older version must not ignore is another version.
//
// A time that a step has made, "the lease from now on", is written as what is added to the time at which the store
// writes the name; every other time is the store's. A step tells them apart by one nanosecond: see [Moment].

// versionOf is the first byte of an encoded Name. It is no UTF-8, and so no text of another program.
const (
	versionOf = 0x80 + 1
	versions  = 0xc0
)

// Moment returns a time of the store's clock for a step of a Name that is encoded afterwards: in whole milliseconds,
// and one nanosecond as a mark. All leases are whole milliseconds, so each time that the step makes has the mark. Such
// a time is encoded as the time since the step, and decoded as the time since the name was written: a lease begins when
// it is written.
func Moment(store time.Duration) Time { return store.Truncate(time.Millisecond) + mark }

const mark = time.Nanosecond

// ErrNewer is wrapped by the error of [Decode] for a name that a later version has written.
var ErrNewer = errors.New("a newer version of mortise has written this name")

// The sections.
const (
	inSessions = iota + 1
	inWrote
	inToken
	inOwners
	inTurn
	inQueue
	inPlaces
	inWriter
	inReaders
	inSidesLine
	inCount
	inOut
	inPermitsLine
	inSaid
	inTick
	inDid
	inWatches
	inTimes
	inName
	sections // the first that this version does not know
)

// encoder writes a Name.
type encoder struct {
	b        []byte
	now      Time
	sessions []Session
	places   map[Session]uint64
}

// Encode appends a Name to b, after a step at a time of [Moment].
func (n *Name) Encode(b []byte, now Time) []byte {
	begin := len(b)
	e := &encoder{now: now, places: make(map[Session]uint64)}
	body := &encoder{now: now, places: e.places}
	n.encode(body)
	e.b = append(b, versionOf)
	e.section(inSessions, len(body.sessions) > 0, func(e *encoder) {
		for _, x := range body.sessions {
			e.b = binary.LittleEndian.AppendUint64(e.b, uint64(x))
		}
	})
	e.b = append(append(e.b, body.b...), n.Rest...)
	return binary.LittleEndian.AppendUint32(e.b, crc32.ChecksumIEEE(e.b[begin:]))
}

func (n *Name) encode(e *encoder) {
	l, r, p := &n.Lock, &n.Sides, &n.Permits
	e.section(inWrote, n.Wrote != Wrote{}, func(e *encoder) {
		e.session(n.Wrote.By)
		e.uint(n.Wrote.Number)
	})
	e.section(inToken, n.Token != 0, func(e *encoder) { e.uint(uint64(n.Token)) })
	each(e, inOwners, l.Owners, (*encoder).owner)
	e.section(inTurn, l.KeptFair != 0 || l.Turn != 0 || l.Extra != Extra{}, func(e *encoder) {
		e.time(l.KeptFair)
		e.int(int64(l.Turn))
		e.session(l.Extra.Session)
		e.uint(l.Extra.Number)
	})
	each(e, inQueue, l.Queue, (*encoder).entry)
	each(e, inPlaces, l.Places, func(e *encoder, x Place) {
		e.text(x.Owner)
		e.time(x.Until)
	})
	e.section(inWriter, r.Writer != Owner{} || r.End != 0 || r.Claim != Claim{}, func(e *encoder) {
		e.owner(r.Writer)
		e.time(r.End)
		e.text(r.Claim.By)
		e.time(r.Claim.Until)
	})
	each(e, inReaders, sorted(r.Readers), (*encoder).owner)
	each(e, inSidesLine, r.Line, (*encoder).waiter)
	e.section(inCount, p.Counts, func(e *encoder) { e.int(p.N) })
	each(e, inOut, slices.Sorted(maps.Keys(p.Out)), func(e *encoder, id string) {
		e.text(id)
		e.time(p.Out[id])
	})
	each(e, inPermitsLine, p.Line, (*encoder).waiter)
	e.section(inSaid, n.Said != Said{}, func(e *encoder) {
		e.text(n.Said.Owner)
		e.text(n.Said.Text)
		e.int(n.Said.Token)
		e.int(n.Said.Number)
		e.time(n.Said.Until)
	})
	e.section(inTick, n.Tick != Tick{}, func(e *encoder) {
		e.int(n.Tick.Last)
		e.text(n.Tick.ID)
		e.time(n.Tick.Until)
	})
	each(e, inDid, n.Did, func(e *encoder, x Did) {
		e.text(x.ID)
		e.int(x.Took)
		e.session(x.Session)
		e.time(x.Until)
	})
	each(e, inWatches, n.Watches, (*encoder).watch)
	e.times(n)
	e.section(inName, n.Name != "", func(e *encoder) { e.text(n.Name) })
}

func sorted(readers map[string]Owner) []Owner {
	all := make([]Owner, 0, len(readers))
	for _, id := range slices.Sorted(maps.Keys(readers)) {
		all = append(all, readers[id])
	}
	return all
}

// section writes a section, if it has something.
func (e *encoder) section(number uint64, has bool, write func(*encoder)) {
	if !has {
		return
	}
	in := &encoder{now: e.now, sessions: e.sessions, places: e.places}
	write(in)
	e.sessions = in.sessions
	e.uint(number)
	e.uint(uint64(len(in.b)))
	e.b = append(e.b, in.b...)
}

// each writes a section of several.
func each[T any](e *encoder, number uint64, all []T, write func(*encoder, T)) {
	e.section(number, len(all) > 0, func(e *encoder) {
		e.uint(uint64(len(all)))
		for _, x := range all {
			write(e, x)
		}
	})
}

func (e *encoder) uint(n uint64) { e.b = binary.AppendUvarint(e.b, n) }
func (e *encoder) int(n int64)   { e.b = binary.AppendVarint(e.b, n) }

func (e *encoder) text(s string) {
	e.uint(uint64(len(s)))
	e.b = append(e.b, s...)
}

func (e *encoder) flag(is bool) {
	n := uint64(0)
	if is {
		n = 1
	}
	e.uint(n)
}

// time writes 0, a time that the step has made (odd), or one of the store's clock (even).
func (e *encoder) time(t Time) {
	switch n := zigzag(t.Milliseconds()); {
	case t == 0:
		e.uint(0)
	case t%time.Millisecond == mark:
		e.uint(zigzag((t-e.now).Milliseconds())<<1 | 1)
	default:
		e.uint((n + 1) << 1)
	}
}

func zigzag(n int64) uint64   { return uint64(n)<<1 ^ uint64(n>>63) }
func unzigzag(n uint64) int64 { return int64(n>>1) ^ -int64(n&1) }

// session writes a session's place in the section of sessions, from 1; 0 for none.
func (e *encoder) session(x Session) {
	if x != 0 && e.places[x] == 0 {
		e.sessions = append(e.sessions, x)
		e.places[x] = uint64(len(e.sessions))
	}
	e.uint(e.places[x])
}

func (e *encoder) owner(o Owner) {
	e.text(o.ID)
	e.int(int64(o.Holds))
	e.time(o.Ends)
	e.session(o.Session)
}

func (e *encoder) entry(x Entry) {
	e.session(x.Session)
	e.uint(x.Number)
	e.text(x.Owner)
	e.int(x.Lease.Milliseconds())
	e.flag(x.Fenced)
	e.int(x.Polls.Milliseconds())
}

func (e *encoder) waiter(x Waiter) {
	e.session(x.Session)
	e.uint(x.Number)
	e.uint(uint64(x.Kind))
	e.flag(x.Writes)
	e.int(x.Wants)
	e.text(x.Owner)
	e.int(x.Size)
	e.int(x.Lease.Milliseconds())
	e.text(x.Claimant)
	e.time(x.Until)
}

func (e *encoder) watch(x Watch) {
	e.session(x.Session)
	e.flag(x.Enrols)
	e.time(x.Until)
	e.uint(uint64(len(x.Topics)))
	for _, t := range x.Topics {
		e.uint(uint64(t.Kind))
		e.text(t.Owner)
	}
}

// decoder reads a Name. After an error all that it reads is zero.
type decoder struct {
	b        []byte
	stamp    Time
	sessions []Session
	bad      bool
}

// Decode reads a Name that was written at a time of the store's clock. Of what is no Name it makes an error that wraps
// [backend.ErrWrongKind]; of what a later version has written one that wraps [ErrNewer].
func Decode(b []byte, stamp time.Duration) (*Name, error) {
	n := new(Name)
	if len(b) == 0 {
		return n, nil
	}
	sum := len(b) - 4
	switch {
	case b[0] > versionOf && b[0] < versions:
		return nil, fmt.Errorf("%w: version %d", ErrNewer, b[0]&0x3f)
	case b[0] != versionOf, sum < 1, binary.LittleEndian.Uint32(b[sum:]) != crc32.ChecksumIEEE(b[:sum]):
		return nil, fmt.Errorf("%w: foreign or damaged data", backend.ErrWrongKind)
	}
	d := &decoder{b: b[1:sum], stamp: stamp.Truncate(time.Millisecond)}
	for last := uint64(0); len(d.b) > 0 && !d.bad; {
		whole := d.b
		number, size := d.uint(), d.uint()
		if d.bad = d.bad || number <= last && number < sections || size > uint64(len(d.b)); d.bad {
			break
		}
		last = number
		in := &decoder{b: d.b[:size], stamp: d.stamp, sessions: d.sessions}
		d.b = d.b[size:]
		if number >= sections {
			n.Rest = append(n.Rest, whole[:len(whole)-len(d.b)]...)
			continue
		}
		n.decode(in, number)
		d.bad, d.sessions = in.bad, in.sessions
	}
	if d.bad {
		return nil, fmt.Errorf("%w: damaged data", backend.ErrWrongKind)
	}
	return n, nil
}

func (n *Name) decode(d *decoder, section uint64) {
	l, r, p := &n.Lock, &n.Sides, &n.Permits
	switch section {
	case inSessions:
		for ; len(d.b) >= 8; d.b = d.b[8:] {
			d.sessions = append(d.sessions, Session(binary.LittleEndian.Uint64(d.b)))
		}
	case inWrote:
		n.Wrote = Wrote{d.session(), d.uint()}
	case inToken:
		n.Token = int64(d.uint())
	case inOwners:
		l.Owners = some(d, (*decoder).owner)
	case inTurn:
		l.KeptFair, l.Turn, l.Extra = d.time(), int(d.int()), Extra{d.session(), d.uint()}
	case inQueue:
		l.Queue = some(d, (*decoder).entry)
	case inPlaces:
		l.Places = some(d, func(d *decoder) Place { return Place{d.text(), d.time()} })
	case inWriter:
		r.Writer, r.End, r.Claim = d.owner(), d.time(), Claim{d.text(), d.time()}
	case inReaders:
		r.Readers = make(map[string]Owner)
		for _, o := range some(d, (*decoder).owner) {
			r.Readers[o.ID] = o
		}
	case inSidesLine:
		r.Line = some(d, (*decoder).waiter)
	case inCount:
		p.Counts, p.N = true, d.int()
	case inOut:
		p.Out = make(map[string]Time)
		some(d, func(d *decoder) (none struct{}) {
			id := d.text()
			p.Out[id] = d.time()
			return none
		})
	case inPermitsLine:
		p.Line = some(d, (*decoder).waiter)
	case inSaid:
		n.Said = Said{d.text(), d.text(), d.int(), d.int(), d.time()}
	case inTick:
		n.Tick = Tick{d.int(), d.text(), d.time()}
	case inDid:
		n.Did = some(d, func(d *decoder) Did { return Did{d.text(), d.int(), d.session(), d.time()} })
	case inWatches:
		n.Watches = some(d, (*decoder).watch)
	case inTimes:
		d.times(n)
	case inName:
		n.Name = d.text()
	}
}

// some reads several, each of one byte at least.
func some[T any](d *decoder, read func(*decoder) T) []T {
	count := d.uint()
	if d.bad = d.bad || count > uint64(len(d.b)); d.bad {
		return nil
	}
	all := make([]T, 0, count)
	for range count {
		all = append(all, read(d))
	}
	return all
}

func (d *decoder) uint() uint64 {
	n, size := binary.Uvarint(d.b)
	if d.bad = d.bad || size <= 0; d.bad {
		return 0
	}
	d.b = d.b[size:]
	return n
}

func (d *decoder) int() int64 { return unzigzag(d.uint()) }
func (d *decoder) flag() bool { return d.uint() != 0 }

func (d *decoder) text() string {
	size := d.uint()
	if d.bad = d.bad || size > uint64(len(d.b)); d.bad {
		return ""
	}
	s := string(d.b[:size])
	d.b = d.b[size:]
	return s
}

func (d *decoder) time() Time {
	switch n := d.uint(); {
	case n == 0:
		return 0
	case n&1 == 1:
		return millis(d.stamp.Milliseconds() + unzigzag(n>>1))
	default:
		return millis(unzigzag(n>>1 - 1))
	}
}

// millis returns milliseconds as a time. Of more than a time can be it makes the longest.
func millis(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond) / 4
	return time.Duration(min(max(n, -most), most)) * time.Millisecond
}

func (d *decoder) session() Session {
	at := d.uint()
	if d.bad = d.bad || at > uint64(len(d.sessions)); d.bad || at == 0 {
		return 0
	}
	return d.sessions[at-1]
}

func (d *decoder) owner() Owner {
	return Owner{ID: d.text(), Holds: int(d.int()), Ends: d.time(), Session: d.session()}
}

func (d *decoder) entry() Entry {
	return Entry{
		Session: d.session(), Number: d.uint(), Owner: d.text(), Lease: millis(d.int()), Fenced: d.flag(),
		Polls: millis(d.int()),
	}
}

func (d *decoder) waiter() Waiter {
	return Waiter{
		Session: d.session(), Number: d.uint(), Kind: backend.Kind(d.uint()), Writes: d.flag(), Wants: d.int(),
		Owner: d.text(), Size: d.int(), Lease: millis(d.int()), Claimant: d.text(), Until: d.time(),
	}
}

func (d *decoder) watch() Watch {
	x := Watch{Session: d.session(), Enrols: d.flag(), Until: d.time()}
	x.Topics = some(d, func(d *decoder) backend.Topic {
		return backend.Topic{Kind: backend.Kind(d.uint()), Owner: d.text()}
	})
	return x
}
