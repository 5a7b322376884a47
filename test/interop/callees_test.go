package interop

import (
	"context"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// callees: a lock that a Go service has entered under another is one that is held, to Java, until the
// last of them goes; whoever of Java's waits for it is woken then.
func callees(p *pair) {
	a, b := p.golang(), p.golang()
	for _, kind := range []struct {
		java string
		kind mortise.Kind
	}{{"plain", mortise.Kind{}}, {"fenced", mortise.Kind{Fenced: true}}, {"fair", mortise.Kind{Fair: true}}} {
		j := p.redisson.thread(p.T, "t").lockOf(kind.java, p.name)
		enter := func() (outer, inner *mortise.Lease) {
			p.Helper()
			outer = a.lock(kind.kind, p.name)
			ctx := harness.Must(b.Adopt(context.Background(), mortise.ClaimsOf(outer.Context())...))(p)
			inner = harness.Must(b.of(kind.kind).Lock(ctx, p.name, in(long), mortise.WithLease(minutes)))(p)
			return outer, inner
		}
		for _, callerFirst := range []bool{true, false} {
			outer, inner := enter()
			_, ok := j.tryLock(0, minutes)
			harness.FatalIf(p, ok, "%s: Java got a lock that caller and callee hold", kind.java)
			w := j.startLock()
			if kind.java != "fair" {
				p.waiting(1)
				p.rests(j.owner())
			}
			last := inner
			if callerFirst {
				a.unlock(outer)
			} else {
				b.unlock(inner)
				last = outer
			}
			select {
			case <-w.done:
				p.Fatalf("%s: Java got a lock that one of two still holds", kind.java)
			case <-time.After(200 * time.Millisecond): // that nothing comes is the subject
			}
			event := time.Now()
			harness.OK(p, last.Unlock(context.Background()))
			d, _ := j.await(w, event)
			p.figure("the last of caller and callee to Java's "+kind.java+" lock", d)
			j.unlock()
		}

		outer, inner := enter()
		harness.ErrorIf(p, !j.forceUnlock(), "%s: Java's forceUnlock found no lock", kind.java)
		for _, l := range []*mortise.Lease{inner, outer} {
			err := l.Unlock(context.Background())
			harness.ErrorIf(p, err == nil, "%s: a hold outlived Java's forceUnlock", kind.java)
		}
		j.lock(minutes)
		j.unlock()
	}
}
