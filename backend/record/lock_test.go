package record

import (
	"fmt"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// The verbs of a lock. Its requests are for ten seconds if no time is named.
//
//	take:a1 fenced:a1     acquire                      enrol:a1 polls:a1       acquire, or wait
//	instead:a2:a1         enrol a2 instead of a1       leave:a1                leave the queue
//	serve:a1:a2           hand over to a2              yield:a1:a2             hand over, or let others go first
//	release:a1 undo:a1    release                      keep:a1:2               set the holds of a hold's end
//	holds:a1:2            a further hold               renew:a1 exact:a1 ask:a1 renew, exactly, or not
//	enter:a2:a1           enter under a1               exit:a1 part:a1:2       release, or set holds, of an entered owner
//	fair:a1 fairrelease:a1 fairleave:a1                the fair lock; fairtry:a1 without a place
//	pass inspect force force:a1 delete forget:a
func onLock(t *testing.T) func(s *Step, verb string, args []string) string {
	l := new(Lock)
	return func(s *Step, verb string, args []string) string {
		args, d := lease(t, args)
		x := append(args, "", "", "")
		n := len(x[1])
		_, _ = fmt.Sscan(x[1], &n)
		q := backend.AcquireRequest{Name: s.Name, Owner: x[0], Lease: d}
		enrol := backend.EnrolRequest{AcquireRequest: q, Entry: 7}
		fair := backend.FairRequest{AcquireRequest: q, Wait: time.Minute}
		free := backend.ReleaseRequest{Name: s.Name, Owner: x[0]}
		renew := backend.RenewRequest{Name: s.Name, Owner: x[0], Lease: d}
		serve := backend.ServeRequest{Name: s.Name, Owner: x[0], Next: x[1], Lease: d, Entry: 9}
		renewed := func(r backend.RenewResult) string {
			if r.Remaining > 0 {
				return "held," + r.Remaining.String()
			}
			return held(r.Held)
		}
		enrolled := func(q backend.EnrolRequest) string {
			r := l.Enrol(s, q)
			return placed(r.AcquireReply, backend.QueueReply{Enrolled: r.Enrolled, First: r.First})
		}
		served := func(q backend.ServeRequest) string {
			r := l.Serve(s, q)
			switch {
			case r.Granted:
				return granted(backend.AcquireReply{Granted: true, Token: r.Token})
			case r.Enrolled:
				return "queued"
			}
			return held(r.Held)
		}
		fairly := func(q backend.FairRequest) string {
			r := l.AcquireFair(s, q)
			out := granted(r.AcquireReply)
			if !r.Granted {
				out += ",ask:" + r.AskAfter.String()
			}
			if r.Joined {
				out += ",joined"
			}
			return out
		}
		entered := func(q backend.EnterRequest) string {
			r := l.Enter(s, q)
			switch {
			case r.Absent:
				return "absent"
			case r.AskAfter > 0:
				return "ask:" + r.AskAfter.String()
			}
			return granted(r.AcquireReply)
		}
		switch verb {
		case "take":
			return granted(l.Acquire(s, q))
		case "fenced":
			q.Fenced = true
			return granted(l.Acquire(s, q))
		case "enrol":
			return enrolled(enrol)
		case "enrolfenced":
			enrol.Fenced = true
			return enrolled(enrol)
		case "polls":
			enrol.Polls = 20 * time.Millisecond
			return enrolled(enrol)
		case "instead":
			enrol.Instead = x[1]
			return enrolled(enrol)
		case "leave":
			l.Leave(s, x[0])
		case "serve":
			return served(serve)
		case "yield":
			serve.Yield = true
			return served(serve)
		case "release":
			return held(l.Release(s, free).Held)
		case "undo":
			free.Undo = true
			return held(l.Release(s, free).Held)
		case "keep":
			free.Keep = n
			return held(l.Release(s, free).Held)
		case "holds":
			return held(l.SetHolds(s, backend.HoldsRequest{Name: s.Name, Owner: x[0], Holds: n, Lease: d}).Held)
		case "renew":
			return renewed(l.Renew(s, renew))
		case "exact":
			renew.Exact = true
			return renewed(l.Renew(s, renew))
		case "ask":
			renew.Lease = 0
			return renewed(l.Renew(s, renew))
		case "enter":
			return entered(backend.EnterRequest{Name: s.Name, Owner: x[0], Under: x[1], Holds: 1, Lease: d})
		case "exit":
			return held(l.ReleaseDelegated(s, free).Held)
		case "part":
			free.Keep = n
			return held(l.ReleaseDelegated(s, free).Held)
		case "fair":
			return fairly(fair)
		case "fairtry":
			fair.Wait = 0
			return fairly(fair)
		case "fairrelease":
			return held(l.ReleaseFair(s, free).Held)
		case "fairleave":
			r := l.LeaveFair(s, x[0])
			return fmt.Sprintf("held:%v,queued:%v", r.Held, r.Queued)
		case "pass":
			l.Pass(s)
		case "inspect":
			r := l.Inspect(s)
			if !r.Held {
				return map[bool]string{true: "reserved", false: "free"}[r.Reserved]
			}
			return fmt.Sprintf("%s,%d,%v", r.Owner, r.Holds, r.Remaining)
		case "force":
			return held(l.ForceRelease(s, backend.ForceRequest{Name: s.Name, Owner: x[0]}))
		case "delete":
			l.Delete(s)
		case "forget":
			l.Forget(s.By)
		case "empty":
			return fmt.Sprint(l.Empty(s.Now))
		default:
			t.Fatalf("no verb %q", verb)
		}
		return ""
	}
}

func TestALock(t *testing.T) {
	for what, text := range map[string]string{
		"one owner at a time": `
			take:a1=granted take:b1=10s inspect=a1,1,10s release:a1=held>all.released take:b1=granted`,
		"a repeated request": "take:a1=granted now:1s take:a1:60s=granted inspect=a1,1,9s",
		"tokens rise": `
			fenced:a1=#1 fenced:a1=#2 release:a1>all.released fenced:b1=#3`,
		"the owner alone releases": `
			take:a1 release:b1=lost release:a1=held>all.released release:a1=lost`,
		"holds are absolute": `
			take:a1 holds:a1:3=held holds:a1:2=held inspect=a1,2,10s keep:a1:1=held inspect=a1,1,10s`,
		"a hold shortens no lease": `
			take:a1 holds:a1:2:1s=held inspect=a1,2,10s holds:a1:2:30s inspect=a1,2,30s`,
		"a hold of nobody":           "holds:a1:2=lost take:b1 holds:a1:2=lost",
		"what is left is rounded up": "take:a1:1ms now:500us take:b1=1ms",
		"a lease ends": `
			take:a1 now:9999ms take:b1=1ms now:10s pass=>all+a.changed take:b1=granted`,
		"a request sees the end": `
			take:a1 now:10s take:b1=granted>all+a.changed release:a1=lost`,
		"a renewal lengthens": `
			take:a1 now:4s renew:a1=held inspect=a1,1,10s renew:a1:2s=held,10s inspect=a1,1,10s`,
		"an exact renewal shortens": "take:a1 exact:a1:2s=held inspect=a1,1,2s",
		"a renewal that only asks":  "take:a1 now:4s ask:a1=held inspect=a1,1,6s ask:b1=lost",
		"a renewal of what is over": "take:a1 now:10s renew:a1=lost>all+a.changed",
		"force": `
			take:a1 force=held>all.released,a.changed force=lost inspect=free`,
		"force what one owner has": `
			take:a1 force:b1=lost inspect=a1,1,10s force:a1=held>all.released,a.changed force:a1=lost
			take:a1 enrol:b1 release:a1>b.granted(b1):1s force:a1=lost inspect=b1,1,1s`,
		"force what is over": "take:a1 now:10s force:a1=lost>all+a.changed",
		"a deletion releases nothing": `
			take:a1 enrol:b1 delete=>all+a.changed inspect=free take:c1=1s>b.granted(b1):1s`,
		"nothing is granted": `
			take:a1 enrol:b1=10s,first closed release:a1=held inspect=free open take:c1=1s>b.granted(b1):1s`,
		"nothing is left": "take:a1 empty=false release:a1>all.released empty=true",
	} {
		t.Run(what, func(t *testing.T) { tell(t, text, onLock(t)) })
	}
}

func TestAReleaseGrants(t *testing.T) {
	for what, text := range map[string]string{
		"the first entry": `
			take:a1 enrol:b1=10s,first enrol:c1=10s,queued release:a1=held>b.granted(b1):1s inspect=b1,1,1s
			renew:b1=held release:b1=held>c.granted(c1):1s release:c1=held>all.released`,
		"for no longer than was asked for": "take:a1 enrol:b1:500ms release:a1>b.granted(b1):500ms",
		"with a token": `
			fenced:a1=#1 enrolfenced:b1 release:a1>b.granted(b1,#2):1s`,
		"the end of a lease does, too": `
			take:a1 enrol:b1 now:10s pass=>all+a.changed,b.granted(b1):1s`,
		"a first lease ends, too": `
			take:a1 enrol:b1 enrol:c1 release:a1>b.granted(b1):1s now:1s
			pass=>all+b.changed,c.granted(c1):1s`,
		"force does, too":         "take:a1 enrol:b1 force=held>b.granted(b1):1s,a.changed",
		"an owner that asks, too": "take:a1 enrol:b1 delete=>all+a.changed enrol:b1=granted",
		"a repeated request keeps its place": `
			take:a1 enrol:b1 enrol:c1 enrol:b1=10s,first enrol:c1=10s,queued release:a1>b.granted(b1):1s`,
		"a request that finds its grant": `
			take:a1 enrol:b1 release:a1>b.granted(b1):1s enrol:b1=granted inspect=b1,1,10s`,
		"a dead client is passed over": `
			take:a1 enrol:b1 enrol:c1 deaf:b release:a1>c.granted(c1):1s`,
		"the last dead client, too": `
			take:a1 enrol:b1 deaf:b release:a1>all.released empty=true`,
		"one that does not listen": "take:a1 deaf:b enrol:b1=10s release:a1>all.released",
		"one that polls": `
			take:a1 deaf:b polls:b1=10s,first release:a1 inspect=b1,1,40ms`,
		"one that polls, and listens": `
			take:a1 polls:b1=10s,first release:a1>b.granted(b1):1s`,
		"a session that has ended": `
			take:a1 enrol:b1 enrol:b2 enrol:c1 forget:b release:a1>c.granted(c1):1s`,
		"another owner in the same place": `
			take:a1 enrol:b1 enrol:c1 instead:b2:b1=10s,first release:a1>b.granted(b2):1s`,
		"another owner instead of a grant": `
			take:a1 enrol:b1 release:a1>b.granted(b1):1s instead:b2:b1=granted inspect=b2,1,10s`,
		"a free lock serves those before": `
			take:a1 enrol:b1 delete=>all+a.changed enrol:c1=1s,first>b.granted(b1):1s`,
	} {
		t.Run(what, func(t *testing.T) { tell(t, text, onLock(t)) })
	}
}

func TestAnEntryLeaves(t *testing.T) {
	for what, text := range map[string]string{
		"the next one is told": `
			take:a1 enrol:b1 enrol:c1 leave:b1=>c.first:1s release:a1>c.granted(c1):1s`,
		"nobody is, behind another": `
			take:a1 enrol:b1 enrol:c1 leave:c1 release:a1>b.granted(b1):1s`,
		"with what it was granted": `
			take:a1 enrol:b1 enrol:c1 release:a1>b.granted(b1):1s leave:b1=>c.granted(c1):1s`,
		"with the only grant": `
			take:a1 enrol:b1 release:a1>b.granted(b1):1s leave:b1=>all.released inspect=free`,
		"twice": `
			take:a1 enrol:b1 leave:b1 leave:b1 release:a1>all.released`,
		"and undoes what it asked for": `
			take:a1 enrol:b1 undo:b1=held release:a1>all.released undo:b1=lost`,
	} {
		t.Run(what, func(t *testing.T) { tell(t, text, onLock(t)) })
	}
}

func TestAHandoffWithinASession(t *testing.T) {
	for what, text := range map[string]string{
		"by command": `
			take:a1 serve:a1:a2=granted inspect=a2,1,10s serve:a1:a3=lost`,
		"beside an entry": `
			take:a1 enrol:b1 serve:a1:a2=granted release:a2>b.granted(b1):1s`,
		"that yields to an entry": `
			take:a1 enrol:b1 yield:a1:a2=queued>b.granted(b1):1s release:b1>a.granted(a2):1s`,
		"that yields to nobody": `
			take:a1 yield:a1:a2=granted enrol:b1=10s,first>a.wanted enrol:c1=10s,queued`,
		"that yields to a stranger": "stranger take:a1 yield:a1:a2=held>all.released",
		"that yields to a dead one": "take:a1 enrol:b1 deaf:b yield:a1:a2=granted",
		"of an owner under another": `
			take:a1 enter:a2:a1=granted serve:a2:a3=held inspect=a1,1,10s`,
	} {
		t.Run(what, func(t *testing.T) { tell(t, text, onLock(t)) })
	}
}

func TestOwnersUnderOwners(t *testing.T) {
	for what, text := range map[string]string{
		"one enters": `
			take:a1 enter:b1:a1:60s=granted take:c1=1m0s inspect=a1,1,1m0s exit:a1=held inspect=b1,1,1m0s
			exit:b1=held>all.released`,
		"again": `
			take:a1 enter:b1:a1=granted enter:b1:a1=granted exit:b1=held exit:b1=lost inspect=a1,1,10s`,
		"only under the last": `
			take:a1 enter:b1:a1:20s=granted enter:c1:a1=20s enter:c1:b1=granted`,
		"not under nobody":  "enter:b1:a1=absent take:c1 enter:b1:a1=absent",
		"not beside a hold": "take:a1 holds:a1:2 enter:b1:a1=ask:1s",
		"each has a lease": `
			take:a1 enter:b1:a1:20s now:10s pass inspect=b1,1,10s now:20s pass=>all+b.changed`,
		"a renewal is that of its owner's lease": `
			take:a1 enter:b1:a1:60s exact:b1:5s=held inspect=a1,1,10s now:5s ask:b1=lost renew:a1:20s=held
			inspect=a1,1,20s`,
		"a count is that of its owner": `
			take:a1 enter:b1:a1 holds:b1:3 keep:b1:2 inspect=a1,1,10s exit:a1 inspect=b1,2,10s`,
		"an outer one whose lease is over holds nothing": `
			take:a1:5s enter:b1:a1:20s now:5s release:a1=lost holds:a1:2=lost ask:a1=lost take:a1=15s enrol:a1=15s,first
			inspect=b1,1,15s`,
		"force tells those that wait to enter": `
			take:outer force=held>all.released(outer),all.released,o.changed`,
		"the inner one ends": `
			take:a1 enter:b1:a1:5s now:5s inspect=a1,1,5s enter:c1:a1=granted`,
		"a late count is not raised": `
			take:a1 holds:a1:3 part:a1:1=held part:a1:2=held inspect=a1,1,10s`,
		"those that wait are told": `
			take:outer enter:b1:outer=granted exit:b1=held>all.released(outer)`,
		"the last one grants": `
			take:a1 enter:b1:a1 enrol:c1 exit:a1=held exit:b1=held>c.granted(c1):1s`,
	} {
		t.Run(what, func(t *testing.T) { tell(t, text, onLock(t)) })
	}
}

func TestAFairLock(t *testing.T) {
	for what, text := range map[string]string{
		"one after the other": `
			fair:a1=granted fair:b1=10s,ask:10s,joined fair:c1=10s,ask:10.1s,joined
			fairrelease:a1=held>all.released(b1) fair:c1=0s,ask:5s>all.released(b1) fair:b1=granted`,
		"no place without a wait": `
			fair:a1=granted fairtry:b1=10s,ask:10.1s fairrelease:a1>all.released`,
		"the plain lock excludes it": `
			take:a1 fair:b1=10s,ask:10s,joined release:a1>all.released fair:b1=granted take:a1=10s`,
		"a dead one has a second": `
			fair:a1 fair:b1 fair:c1 deaf:b fairrelease:a1>all.released(c1) fair:c1=0s,ask:1s now:1s
			fair:c1=granted`,
		"a client's dead places have one": `
			fair:a1 fair:b/1 fair:b/2 fair:b/3 fair:c1 deaf:b fairrelease:a1>all.released(c1)
			fair:c1=0s,ask:1s now:1s fair:c1=granted`,
		"it leaves": `
			fair:a1 fair:b1 fair:c1 fairleave:b1=held:false,queued:true fairrelease:a1>all.released(c1)`,
		"it leaves what it holds": `
			fair:a1 fair:b1 fairleave:a1=held:true,queued:false>all.released(b1)`,
		"the first of a free lock leaves": `
			fair:a1 fair:b1 fair:c1 fairrelease:a1>all.released(b1)
			fairleave:b1=held:false,queued:true>all.released(c1)`,
		"force tells the first": "fair:a1 fair:b1 force=held>all.released,all.released(b1),a.changed",
	} {
		t.Run(what, func(t *testing.T) { tell(t, text, onLock(t)) })
	}
}

func TestTheQueuesOfTheFairAndThePlainLockTakeTurns(t *testing.T) {
	for what, text := range map[string]string{
		"after a plain tenure": `
			take:a1 enrol:b1 fair:f1 release:a1>all.released(f1),b.first:1s inspect=reserved fair:f1=granted
			fairrelease:f1>b.granted(b1):1s`,
		"a turn that nobody takes": `
			take:a1 enrol:b1 fair:f1 release:a1>all.released(f1),b.first:1s now:1s
			pass=>all.changed,b.granted(b1):1s`,
		"a turn of two clients": `
			take:a1 enrol:b1 fair:f/1 fair:g/1 release:a1>all.released(f:1),b.first:1s fair:f/1=granted
			fairrelease:f/1>all.released(g:1) fair:g/1=granted fairrelease:g/1>b.granted(b1):1s`,
		"a dead fair client has none": `
			take:a1 enrol:b1 fair:f1 deaf:f release:a1>b.granted(b1):1s`,
		"without entries no turn": "take:a1 fair:f1 release:a1>all.released inspect=free",
	} {
		t.Run(what, func(t *testing.T) { tell(t, text, onLock(t)) })
	}
}
