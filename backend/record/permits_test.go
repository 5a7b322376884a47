package record

import (
	"fmt"
	"testing"

	"github.com/mortise-go/mortise/backend"
)

// The verbs of latches and semaphores. A number is the last argument: of permits, or of a count.
//
//	set:3 latch:3         make a count, if there is none   count down drop delete drain add:2
//	take:a:2 back:2       permits without a lease
//	get:a1 more:a1,a2     permits with a lease of ten seconds, by id, of 2 in all
//	free:a1 renew:a1:20s  release, renew; limit:3          leave:a forget:a list
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
			r := p.Acquire(s, get)
			if r.Granted {
				return fmt.Sprintf("granted,%d", r.Available)
			}
			return placed(r.AcquireReply, r.QueueReply)
		case "free":
			return held(p.Release(s, backend.ReleaseRequest{Name: s.Name, Owner: x[0]}).Held)
		case "renew":
			return held(p.Renew(s, backend.RenewRequest{Name: s.Name, Owner: x[0], Lease: d}).Held)
		case "list":
			r := p.Inspect(s, 10)
			return fmt.Sprintf("%d,%d", r.Free, r.Out)
		case "leave":
			p.Leave(s, s.By, 7)
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
