package redisproto

import (
	"context"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// Describe implements [backend.OperatorStore].
func (s operator) Describe(ctx context.Context, r backend.DescribeRequest) (backend.Description, error) {
	if err := s.ready(ctx); err != nil {
		return backend.Description{}, err
	}
	reply, err := s.adapter.Describe(ctx, DescribeKeys{Lock: r.Name}, DescribeArgs{Entries: int64(r.Entries)})
	if err != nil {
		return backend.Description{}, s.fault(err)
	}
	d, _, ok := described(reply)
	if !ok {
		return backend.Description{}, strange("describe", reply)
	}
	d.Queue = d.Queue[:min(r.Entries, len(d.Queue))]
	return d, nil
}

// described decodes the reply of the script describe; not ok if it is none. Fields are the owners and their hold
// counts, in turn.
func described(reply []string) (d backend.Description, fields []string, ok bool) {
	var head [5]int64 // pttl, token, how many wait, since when, the length of the owners
	for i := range head {
		var err error
		if len(reply) < 6 {
			return d, nil, false
		}
		if head[i], err = strconv.ParseInt(reply[i+1], 10, 64); err != nil {
			return d, nil, false
		}
	}
	left, owners, entries := head[0], head[4], reply[6:]
	if left < -2 || owners < 0 || owners > int64(len(entries)) || owners%2 != 0 || len(entries)%2 != 0 {
		return d, nil, false
	}
	d.Waiting = int(max(head[2], 0))
	d.Queue = waiters(entries[owners:])
	fields = entries[:owners]
	switch reply[0] {
	case "none":
		return d, fields, true
	case "lock":
		d.Token = head[1]
		if d.Record = ofLock(left, fields); head[3] > 0 {
			d.Since = time.UnixMilli(head[3])
		}
	case "read", "write":
		d.Record = ofSides(left, reply[0], fields)
	case "semaphore", "count":
		d.Record = ofCount(left, reply[0], fields)
	default:
		return d, nil, false
	}
	d.Exists = true
	return d, fields, true
}

// ofLock returns the record of a lock that has these fields.
func ofLock(left int64, fields []string) backend.Record {
	rec := backend.Record{Held: true, Remaining: remaining(left)}
	for i := 0; i < len(fields); i += 2 {
		rec.Reserved = rec.Reserved || strings.HasPrefix(fields[i], "mortise:reserved:")
		if holds, err := strconv.Atoi(fields[i+1]); err == nil && holds > 0 && rec.Holds == 0 {
			rec.Owner, rec.Holds = fields[i], holds
		}
	}
	if rec.Reserved = rec.Reserved && rec.Holds == 0; rec.Reserved {
		return backend.Record{Reserved: true}
	}
	return rec
}

// ofSides returns the record of a read-write lock in a mode that has these fields.
func ofSides(left int64, mode string, fields []string) backend.Record {
	rec := backend.Record{Held: true, Remaining: remaining(left), Kind: backend.KindRead}
	if mode == "write" {
		rec.Kind = backend.KindWrite
	}
	for i := 0; i < len(fields); i += 2 {
		holds, err := strconv.Atoi(fields[i+1])
		owner, writer := strings.CutSuffix(fields[i], ":write")
		switch {
		case err != nil || holds <= 0:
		case writer:
			rec.Owner, rec.Holds = owner, holds
		default:
			rec.Readers++
			if rec.Kind == backend.KindRead && (rec.Owner == "" || owner < rec.Owner) {
				rec.Owner, rec.Holds = owner, holds
			}
		}
	}
	return rec
}

// ofCount returns the record of a count: fields are the permit that ends last and the number of permits in use, or
// nothing and the count.
func ofCount(left int64, kind string, fields []string) backend.Record {
	rec := backend.Record{Kind: backend.KindCountingSemaphore}
	if len(fields) == 2 {
		rec.Holds, _ = strconv.Atoi(fields[1])
		if kind == "semaphore" {
			rec.Held, rec.Kind, rec.Owner = true, backend.KindSemaphore, hex.EncodeToString([]byte(fields[0]))
			rec.Remaining = remaining(left)
		}
	}
	return rec
}

// waiters decodes entries and their scores, in turn. Those of a fair lock's queue begin with =, and are the last.
func waiters(entries []string) []backend.Waiter {
	all := make([]backend.Waiter, 0, len(entries)/2)
	for i := 0; i < len(entries); i += 2 {
		if owner, fair := strings.CutPrefix(entries[i], "="); fair {
			all = append(all, backend.Waiter{Kind: backend.KindFair, Owner: owner})
			continue
		}
		tag, marked, is := strings.Cut(entries[i], ":")
		if !is || tag == "" {
			continue // the turn of Redisson's clients
		}
		k := kindIn(tag, marked)
		w := backend.Waiter{Kind: k, Owner: ownerIn(k, marked), Session: strings.TrimSuffix(tag[1:], ".")}
		// A score of a time in microseconds; zero or less: the entry was told to ask.
		if came, err := strconv.ParseFloat(entries[i+1], 64); err == nil && came > 0 {
			w.Since = time.UnixMicro(int64(came))
		}
		all = append(all, w)
	}
	return all
}

// kindIn returns the kind of an entry with a tag: that of a semaphore has a dot in its tag, and that of a read-write
// lock says which side it asks for. An entry without an owner says neither, and is taken for that of a plain lock.
func kindIn(tag, marked string) backend.Kind {
	mark, _, owned := strings.Cut(marked, ":")
	mark = strings.TrimSuffix(mark, wantsMore)
	switch {
	case strings.HasSuffix(tag, "."):
		return backend.KindSemaphore
	case owned && (mark == wantsRead || mark == wantsWrite):
		return backend.KindWrite
	}
	return backend.KindLock
}
