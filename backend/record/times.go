package record

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strconv"
	"time"
)

// The section of times says since when each owner has the lock, with its token, and when each entry came: what only
// operators ask. It has a mark of four bytes for each of them, not its place: a version that does not know the section
// keeps it, and changes owners and entries.

// dated is an owner or an entry with its time. Token is nil where there is none.
type dated struct {
	mark  uint32
	at    *Time
	token *int64
}

// times returns the owners and entries of a name. The readers are copies.
func (n *Name) times() (all []dated, readers []Owner) {
	add := func(at *Time, token *int64, kind, id string) {
		all = append(all, dated{crc32.ChecksumIEEE([]byte(kind + id)), at, token})
	}
	for i := range n.Lock.Owners {
		o := &n.Lock.Owners[i]
		add(&o.Since, &o.Token, "owner", o.ID)
	}
	if o := &n.Sides.Writer; o.ID != "" {
		add(&o.Since, nil, "writer", o.ID)
	}
	readers = sorted(n.Sides.Readers)
	for i := range readers {
		add(&readers[i].Since, nil, "reader", readers[i].ID)
	}
	for i := range n.Lock.Queue {
		e := &n.Lock.Queue[i]
		add(&e.Came, nil, "entry", e.Owner)
	}
	for _, l := range []Line{n.Sides.Line, n.Permits.Line} {
		for i := range l {
			w := &l[i]
			add(&w.Came, nil, "entry", w.Owner+w.Session.String()+":"+strconv.FormatUint(w.Number, 10))
		}
	}
	return all, readers
}

// times writes the section. A time is 0 if the step has made it: it is that of the step. Any other is the difference to
// the one before. The last bit says that a token follows.
func (e *encoder) times(n *Name) {
	all, _ := n.times()
	all = slices.DeleteFunc(all, func(x dated) bool { return *x.at == 0 && (x.token == nil || *x.token == 0) })
	e.section(inTimes, len(all) > 0, func(e *encoder) {
		last := int64(0)
		for _, x := range all {
			e.b = binary.LittleEndian.AppendUint32(e.b, x.mark)
			code := uint64(0)
			if t := *x.at; t%time.Millisecond != mark {
				code, last = zigzag(t.Milliseconds()-last)+1, t.Milliseconds()
			}
			if x.token == nil || *x.token == 0 {
				e.uint(code << 1)
			} else {
				e.uint(code<<1 | 1)
				e.int(*x.token)
			}
		}
	})
}

// times reads the section, and gives the owners and entries of a name their times.
func (d *decoder) times(n *Name) {
	type when struct {
		at    Time
		token int64
	}
	read, last := make(map[uint32]when), Time(0)
	for len(d.b) >= 4 && !d.bad {
		id := binary.LittleEndian.Uint32(d.b)
		d.b = d.b[4:]
		w, code := when{at: d.stamp}, d.uint()
		if code>>1 != 0 {
			last = millis(last.Milliseconds() + unzigzag(code>>1-1)) // a difference may be twice the longest time
			w.at = last
		}
		if code&1 == 1 {
			w.token = d.int()
		}
		read[id] = w
	}
	all, readers := n.times()
	for _, x := range all {
		if w, is := read[x.mark]; is {
			if *x.at = w.at; x.token != nil {
				*x.token = w.token
			}
		}
	}
	for _, o := range readers {
		n.Sides.Readers[o.ID] = o
	}
}
