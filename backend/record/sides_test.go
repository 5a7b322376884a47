package record

import (
	"fmt"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// The verbs of a read-write lock. Its requests are for ten seconds if no time is named.
//
//	read:a1 write:a1      acquire, or wait             claim:a1                write, and claim for a minute if refused
//	tryread:a1 trywrite:a1                              under:a2:a1 below:a2:a1  read under a reader, or a writer
//	unread:a1 unwrite:a1  release                      keep:a1:2 holds:a1:2    set the writer's holds
//	renewread:a1 exactread:a1 renewwrite:a1 exactwrite:a1
//	leave:a withdraw:a pass inspect force delete forget:a empty
func onSides(t *testing.T) func(s *Step, verb string, args []string) string {
	l := new(Sides)
	return func(s *Step, verb string, args []string) string {
		args, d := lease(t, args)
		x := append(args, "", "", "")
		holds := 0
		_, _ = fmt.Sscan(x[1], &holds)
		read := backend.ReadRequest{Name: s.Name, Owner: x[0], Lease: d}
		write := backend.WriteRequest{Name: s.Name, Owner: x[0], Lease: d, Claimant: string(rune(s.By))}
		free := backend.ReleaseRequest{Name: s.Name, Owner: x[0]}
		renew := backend.RenewRequest{Name: s.Name, Owner: x[0], Lease: d}
		reads := func(q backend.ReadRequest) string {
			r := l.AcquireRead(s, q)
			if r.Absent {
				return "absent"
			}
			return placed(r.AcquireReply, r.QueueReply)
		}
		writes := func(q backend.WriteRequest) string {
			r := l.AcquireWrite(s, q)
			out := placed(r.AcquireReply, r.QueueReply)
			if r.Claimed {
				out += ",claimed"
			}
			return out
		}
		renewed := func(r backend.RenewResult) string {
			if r.Remaining > 0 {
				return "held," + r.Remaining.String()
			}
			return held(r.Held)
		}
		switch verb {
		case "read":
			read.Entry = 7
			return reads(read)
		case "tryread":
			return reads(read)
		case "under", "below":
			read.Under, read.UnderWriter = x[1], verb == "below"
			return reads(read)
		case "write":
			write.Entry = 8
			return writes(write)
		case "claim":
			write.Entry, write.Claim = 8, time.Minute
			return writes(write)
		case "trywrite":
			return writes(write)
		case "unread":
			return held(l.ReleaseRead(s, free).Held)
		case "unwrite":
			return held(l.ReleaseWrite(s, free).Held)
		case "keep":
			free.Keep = holds
			return held(l.ReleaseWrite(s, free).Held)
		case "holds":
			return held(l.SetWriteHolds(s, backend.HoldsRequest{Name: s.Name, Owner: x[0], Holds: holds, Lease: d}).Held)
		case "renewread", "exactread":
			renew.Exact = verb == "exactread"
			return renewed(l.RenewRead(s, renew))
		case "renewwrite", "exactwrite":
			renew.Exact = verb == "exactwrite"
			return renewed(l.RenewWrite(s, renew))
		case "leave":
			l.Leave(s, s.By, 7)
			l.Leave(s, s.By, 8)
		case "withdraw":
			l.Withdraw(s, string(rune(s.By)))
		case "pass":
			l.Pass(s)
		case "inspect":
			r := l.Inspect(s)
			if !r.Held {
				return "free"
			}
			side := map[backend.Kind]string{backend.KindRead: "read", backend.KindWrite: "write"}[r.Kind]
			return fmt.Sprintf("%s,%s,%d,%d,%v", side, r.Owner, r.Holds, r.Readers, r.Remaining)
		case "force":
			return held(l.ForceRelease(s, backend.ForceRequest{Name: s.Name, Owner: x[0]}))
		case "delete":
			l.Delete(s)
		case "forget":
			l.Forget(s, s.By)
		case "empty":
			return fmt.Sprint(l.Empty(s.Now))
		default:
			t.Fatalf("no verb %q", verb)
		}
		return ""
	}
}

func TestSides(t *testing.T) {
	for what, text := range map[string]string{
		"readers share": `
			tryread:a1=granted tryread:b1:20s=granted inspect=read,a1,1,2,20s trywrite:c1=20s`,
		"a writer excludes": `
			trywrite:a1=granted tryread:b1=10s trywrite:b1=10s inspect=write,a1,1,0,10s`,
		"a repeated request": `
			tryread:a1=granted tryread:a1:60s=granted trywrite:a1=10s unread:a1=held>all.released
			trywrite:a1=granted trywrite:a1=granted`,
		"the last reader frees": `
			tryread:a1 tryread:b1 unread:a1=held unread:a1=lost unread:b1=held>all.released empty=true`,
		"a writer's release": `
			trywrite:a1 unwrite:b1=lost unwrite:a1=held>all.released unwrite:a1=lost empty=true`,
		"a writer reads below": `
			trywrite:a1 below:a2:a1:20s=granted inspect=write,a1,1,1,20s unwrite:a1=held>all.released
			inspect=read,a2,1,1,20s`,
		"a reader under a reader": `
			tryread:a1 under:a2:a1=granted unread:a1=held inspect=read,a2,1,1,10s`,
		"under nobody": `
			under:a2:a1=absent below:a2:a1=absent trywrite:a1 under:a2:a1=absent`,
		"a writer's holds": `
			trywrite:a1 holds:a1:2:30s=held inspect=write,a1,2,0,30s keep:a1:1=held holds:b1:2=lost`,
		"a reader's lease ends": `
			tryread:a1 tryread:b1:20s now:10s unread:a1=lost inspect=read,b1,1,1,10s now:20s
			pass>all+b.changed`,
		"the writer's lease ends": "trywrite:a1 now:10s tryread:b1=granted>all+a.changed",
		"renewals": `
			tryread:a1 now:5s renewread:a1=held renewread:a1:2s=held,10s inspect=read,a1,1,1,10s
			renewread:b1=lost renewwrite:a1=lost`,
		"exact renewals": "tryread:a1 exactread:a1:2s=held inspect=read,a1,1,1,2s",
		"not before another reader": `
			tryread:a1 tryread:b1:20s exactread:b1:1s=held inspect=read,a1,1,2,10s`,
		"a writer's renewals": `
			trywrite:a1 renewwrite:a1:30s=held inspect=write,a1,1,0,30s exactwrite:a1:2s=held
			inspect=write,a1,1,0,2s`,
		"force": `
			tryread:a1 tryread:b1 force=held>all.released,ab.changed force=lost`,
		"force what one owner has": `
			tryread:a1 tryread:b1 force:c1=lost force:a1=held>a.changed inspect=read,b1,1,1,10s
			force:a1=lost force:b1=held>all.released,b.changed
			trywrite:a1 below:a2:a1:20s force:a1=held>all.released,a.changed inspect=read,a2,1,1,20s`,
		"a deletion": "trywrite:a1 delete>all+a.changed inspect=free",
	} {
		t.Run(what, func(t *testing.T) { tell(t, text, onSides(t)) })
	}
}

func TestTheLineOfAReadWriteLock(t *testing.T) {
	for what, text := range map[string]string{
		"a writer's release tells readers": `
			trywrite:a1 read:b1=10s,first read:c1=10s,queued
			unwrite:a1>b.reserved,c.reserved,strangers.released read:b1=granted read:c1=granted`,
		"or a writer": `
			trywrite:a1 write:b1=10s,first write:c1=10s,queued
			unwrite:a1>b.reserved,c.first:1s,strangers.released tryread:d1=1s trywrite:d1=1s
			write:b1=granted`,
		"what is kept ends": `
			trywrite:a1 write:b1 unwrite:a1>b.reserved,strangers.released now:1s trywrite:d1=granted`,
		"the last reader's release, too": `
			tryread:a1 write:b1=10s,first unread:a1>b.reserved,strangers.released write:b1=granted`,
		"a claim keeps readers out": `
			tryread:a1 claim:b1=10s,first,claimed tryread:c1=1m0s tryread:a1=granted
			unread:a1>b.reserved,strangers.released`,
		"a claim is withdrawn": `
			tryread:a1 claim:b1 read:c1=1m0s,queued leave:b>c.first:1s
			withdraw:b>c.reserved,strangers.released read:c1=granted`,
		"those who leave give it on": `
			trywrite:a1 write:b1 read:c1 unwrite:a1>b.reserved,c.first:1s,strangers.released
			leave:b>c.reserved`,
		"a session that ended does": `
			trywrite:a1 write:b1 read:c1 unwrite:a1>b.reserved,c.first:1s,strangers.released
			forget:b>c.reserved`,
		"the dead are passed over": `
			trywrite:a1 write:b1 read:c1 deaf:b unwrite:a1>c.reserved,strangers.released`,
		"one that was told goes in front": `
			trywrite:a1 read:b1 unwrite:a1>b.reserved,strangers.released now:1s trywrite:c1=granted
			read:b1=10s,first`,
		"a claim that is over": "tryread:a1:120s claim:b1 now:60s tryread:c1=granted",
	} {
		t.Run(what, func(t *testing.T) { tell(t, text, onSides(t)) })
	}
}
