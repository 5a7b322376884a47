package record

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/backend"
)

// The verbs of latches and semaphores. A number is the last argument: of permits, or of a count.
//
//	set:3 latch:3         make a count, if there is none   count down drop delete drain add:2
//	take:a:2 back:2       permits without a lease
//	get:a1 more:a1,a2     permits with a lease of ten seconds, by id, of 2 in all
//	free:a1 renew:a1:20s  release, renew; limit:3          leave:a forget:a list
//	next:a1,a2            as get, without a limit: a release grants the owner; leave:a1 undo:a1
func onPermits(t *testing.T) func(s *Step, verb string, args []string) string {
	p := new(Permits)
	return func(s *Step, verb string, args []string) string {
		args, d := lease(t, args)
		x := append(args, "", "", "")
		n := int64(1)
		if last := len(args) - 1; last >= 0 {
			_, _ = fmt.Sscan(args[last], &n)
		}
		get := backend.PermitRequest{Name: s.Name, Owner: x[0], Lease: d, Limit: 2}
		get.Entry, get.Least = 7, 1
		take := backend.CountRequest{Topic: s.topic(backend.KindCountingSemaphore), N: n}
		take.Entry, take.Least = 7, n
		next := get
		next.Entry, next.Limit, next.Grants, next.Least = 9, 0, true, int64(1+strings.Count(x[0], ","))
		acquire := func(q backend.PermitRequest) string {
			r := p.Acquire(s, q)
			if r.Granted {
				return fmt.Sprintf("granted,%d", r.Available)
			}
			return placed(r.AcquireReply, r.QueueReply)
		}
		switch verb {
		case "set":
			return fmt.Sprint(p.Set(s, backend.KindSemaphore, n))
		case "latch":
			return fmt.Sprint(p.Set(s, backend.KindCountDownLatch, n))
		case "down":
			return fmt.Sprint(p.CountDown(s))
		case "drop":
			return fmt.Sprint(p.DeleteLatch(s))
		case "delete":
			return fmt.Sprint(p.Delete())
		case "drain":
			return fmt.Sprint(p.Drain())
		case "count":
			return fmt.Sprint(p.Count(s))
		case "add":
			return fmt.Sprint(p.Add(s, n))
		case "back":
			p.Back(s, n)
		case "limit":
			p.SetLimit(s, n)
		case "take":
			r := p.Take(s, take)
			if r.Granted {
				return fmt.Sprintf("granted,%d", r.Available)
			}
			return placed(backend.AcquireReply{Remaining: r.Remaining}, r.QueueReply)
		case "get":
			return acquire(get)
		case "next":
			return acquire(next)
		case "next2": // of two owners, of which the second is given up
			next.Instead = x[1]
			return acquire(next)
		case "fewer": // another waiter of its session wants one permit
			next.Least = 1
			return acquire(next)
		case "undo":
			return held(p.Release(s, backend.ReleaseRequest{Name: s.Name, Owner: x[0], Undo: true}).Held)
		case "free":
			return held(p.Release(s, backend.ReleaseRequest{Name: s.Name, Owner: x[0]}).Held)
		case "renew":
			return held(p.Renew(s, backend.RenewRequest{Name: s.Name, Owner: x[0], Lease: d}).Held)
		case "list":
			r := p.Inspect(s, 10)
			return fmt.Sprintf("%d,%d", r.Free, r.Out)
		case "leave":
			if owner := x[0]; len(owner) > 1 {
				p.Leave(s, 9, owner)
				break
			}
			p.Leave(s, 7, "")
		case "forget":
			p.Forget(s, s.By)
		case "empty":
			return fmt.Sprint(p.Empty(s.Now))
		default:
			t.Fatalf("no verb %q", verb)
		}
		return ""
	}
}

func TestCounts(t *testing.T) {
	for what, text := range map[string]string{
		"a latch": `
			latch:2=true>all.released latch:3=false down=1 down=0>all.released down=0 empty=true`,
		"a latch is removed": "drop=false latch:2>all.released drop=true>all.released count=0",
		"a semaphore": `
			set:2=true>all.released take:a:2=granted,0 take:b:1=0s,first
			add:1=1>b.reserved,strangers.released`,
		"without entries": `
			add:2=2>all.released drain=2 drain=0 count=0 delete=true delete=false`,
		"what was taken undone": "set:2>all.released take:a:2 back:1>all.released count=1",
		"no count, no undo":     "back:1 empty=true",
		"a large want is first": `
			set:1>all.released take:b:2=0s,first take:a:1=granted,0 add:1=1>all.released
			add:1=2>b.reserved,strangers.released`,
	} {
		t.Run(what, func(t *testing.T) { tell(t, text, onPermits(t)) })
	}
}

func TestPermits(t *testing.T) {
	for what, text := range map[string]string{
		"as many as the limit": `
			get:a1=granted,1>all.released get:b1=granted,0 get:c1=10s,first list=0,2`,
		"a repeated request": "get:a1=granted,1>all.released get:a1=granted,1 list=1,1",
		"several at once": `
			get:a1,a2=granted,0 get:b1=10s,first free:a1,a2=held>b.reserved,strangers.released`,
		"a release serves": `
			get:a1>all.released get:b1 get:c1 free:a1=held>c.reserved,strangers.released get:d1=1s,first
			get:c1=granted,0`,
		"a release of nothing": `
			free:a1=lost get:a1>all.released free:b1=lost free:a1=held>all.released free:a1=lost`,
		"a permit ends": `
			get:a1>all.released get:b1 now:10s get:c1=granted,1>all.released free:a1=lost renew:b1=lost`,
		"a permit is renewed": `
			get:a1>all.released renew:a1:20s=held now:10s list=1,1 renew:c1=lost`,
		"the limit": `
			limit:1>all.released get:a1=granted,0 get:b1=10s,first limit:2>b.reserved,strangers.released`,
		"a smaller limit": `
			get:a1>all.released get:b1 limit:1 count=-1 free:a1=held count=0 get:c1=10s,first`,
		"all are removed": "get:a1>all.released delete=true free:a1=lost empty=true",
		"an entry leaves": `
			get:a1>all.released get:b1 get:c1 get:d1=10s,queued
			free:a1>c.reserved,d.first:1s,strangers.released leave:c>d.reserved`,
		"a session ends": `
			get:a1>all.released get:b1 get:c1 get:d1 forget:c>d.first:1s
			free:a1>d.reserved,strangers.released`,
		"what is kept ends": `
			get:a1>all.released get:b1 get:c1 free:a1>c.reserved,strangers.released now:1s get:d1=granted,0`,
		"a count by somebody": "set:1>all.released get:a1=granted,0 get:b1=10s,first",
	} {
		t.Run(what, func(t *testing.T) { tell(t, text, onPermits(t)) })
	}
}

func TestAReleaseGrantsPermits(t *testing.T) {
	for what, text := range map[string]string{
		"to the first": `
			get:a1>all.released get:a2 next:b1=10s,first next:c1=10s,queued
			free:a1=held>b.granted(b1):1s,c.first:1s,strangers.released list=0,2 next:d1=1s,queued
			free:a2=held>c.granted(c1):1s,d.first:1s,strangers.released`,
		"as many as fit": `
			get:a1,a2 next:b1 next:c1,c2 next:d1=10s,queued
			free:a1,a2=held>b.granted(b1):1s,d.granted(d1):1s,c.first:1s,strangers.released list=0,2`,
		"as many as it wants": `
			get:a1,a2 next:b1,b2=10s,first free:a1,a2=held>b.granted(b1,b2):1s,strangers.released
			list=0,2`,
		"for the lease that was asked for": `
			get:a1,a2 next:b1:0.3s free:a1,a2=held>b.granted(b1):300ms,strangers.released`,
		"until the lease is over": `
			get:a1,a2 next:b1,b2 free:a1,a2>b.granted(b1,b2):1s,strangers.released now:1s
			renew:b1,b2=lost get:c1,c2=granted,0`,
		"that is then renewed": `
			get:a1,a2 next:b1 free:a1,a2>b.granted(b1):1s,strangers.released renew:b1=held now:9s
			renew:b1=held`,
		"and its owner asks and finds them": `
			get:a1,a2 next:b1 free:a1,a2>b.granted(b1):1s,strangers.released next:b1=granted,1 now:9s
			renew:b1=held`,
		"to one that comes at an end": `
			get:a1,a2 next:b1=10s,first now:10s next:c1=granted,1>b.granted(b1):1s`,
		"by a larger limit": `
			get:a1,a2 next:b1 limit:3>b.granted(b1):1s,strangers.released list=0,3`,
		"and passes over the dead": `
			get:a1,a2 next:b1 next:c1 deaf:b free:a1,a2>c.granted(c1):1s,strangers.released`,
		"but asks an entry without an owner": `
			get:a1,a2 get:b1 next:c1 free:a1,a2>b.reserved,c.granted(c1):1s,strangers.released
			get:b1=granted,0`,
		"or one whose session wants fewer": `
			get:a1>all.released get:a2 fewer:b1,b2=10s,first free:a1>b.reserved,strangers.released
			next2:b3:b1,b2=granted,0`,
	} {
		t.Run(what, func(t *testing.T) { tell(t, text, onPermits(t)) })
	}
}

func TestAnOwnerLeavesTheLineOfASemaphore(t *testing.T) {
	for what, text := range map[string]string{
		"before it is granted": `
			get:a1,a2 next:b1 next:c1 leave:b1>c.first:1s
			free:a1,a2>c.granted(c1):1s,strangers.released`,
		"after it was granted": `
			get:a1,a2 next:b1,b2 next:c1 free:a1,a2>b.granted(b1,b2):1s,c.first:1s,strangers.released
			leave:b1,b2>c.granted(c1):1s,strangers.released list=1,1`,
		"by a compensation": `
			get:a1,a2 next:b1 undo:b1=held undo:b1=lost next:c1
			free:a1,a2>c.granted(c1):1s,strangers.released undo:c1=held>all.released`,
		"and another takes its place": `
			get:a1,a2 next:b1 next:c1 next2:b2:b1=10s,first
			free:a1,a2>b.granted(b2):1s,c.granted(c1):1s,strangers.released`,
	} {
		t.Run(what, func(t *testing.T) { tell(t, text, onPermits(t)) })
	}
}
