package backendtest

import (
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
)

// ageTests are about stores that know since when they have their data. They do nothing on a
// backend that does not.
var ageTests = where((*env).knowsAge, "a store that knows its age", []test{
	{"Port_AStoreThatWasEmptiedRefusesUntilItIsOldEnough", func(e *env) {
		s := e.bare()
		ask := func(owner string, age time.Duration) anykind.AcquireReply {
			e.Helper()
			r := call(e, s.Acquire, anykind.AcquireRequest{Name: "n", Owner: owner, Lease: long, Age: &backend.Age{Least: age}})
			e.fatalIf(r.Young && (r.Granted || r.Remaining <= 0 || r.Remaining > age), "%+v, want Remaining up to %v", r, age)
			return r
		}
		const age = time.Second
		emptied := time.Now()
		e.store.Flush()
		r := ask("a:1", long)
		e.fatalIf(!r.Young, "an empty store is as old as it likes: %+v", r)
		s.take("n", "b:1", long) // a request without an age
		r = ask("a:1", long)
		e.errorIf(!r.Young, "refused as %+v, want it young though another holds the lock", r)
		r = ask("b:1", long)
		e.errorIf(!r.Granted, "an owner that holds the lock is refused: %+v", r)
		s.release("n", "b:1", 0)
		for r := ask("a:1", age); !r.Granted; r = ask("a:1", age) {
			e.fatalIf(!r.Young, "refused as %+v, want it young", r)
			time.Sleep(min(r.Remaining+time.Millisecond, patience)) // that time is the subject
			e.fatalIf(time.Since(emptied) > patience, "not granted %v after it was emptied", patience)
		}
		atLeast(e, "granted %v after the store was emptied", time.Since(emptied), age)
		r = ask("a:1", age)
		e.errorIf(!r.Granted, "the same request again: %+v", r)
		s.heldBy("n", "a:1", 1)
		r = ask("c:1", age)
		e.errorIf(r.Granted || r.Young || r.Remaining <= 0, "of another's lock: %+v", r)
		s.release("n", "a:1", 0)
		r = ask("c:1", age)
		e.errorIf(!r.Granted, "of a free lock on a store that is old enough: %+v", r)
		e.store.Flush()
		r = ask("d:1", long)
		e.errorIf(!r.Young, "once it was emptied again: %+v", r)
	}},
	{"Port_AStoreThatWasEmptiedIsYoungInEachScope", func(e *env) {
		s := e.bare()
		ask := func(scope string, age time.Duration) anykind.AcquireReply {
			e.Helper()
			return call(e, s.Acquire, anykind.AcquireRequest{Name: "n" + scope, Owner: "a:1", Lease: long,
				Age: &backend.Age{Least: age, Scope: scope}})
		}
		e.store.Flush()
		scopes := []string{"", "orders", "orders:eu", "{x}"}
		for _, scope := range scopes {
			r := ask(scope, long)
			e.errorIf(!r.Young, "scope %q: an empty store is as old as it likes: %+v", scope, r)
		}
		for _, scope := range scopes {
			e.until("it is old enough", func() bool { return ask(scope, time.Second).Granted })
		}
	}},
	{"Port_AnAgeIsAskedOfAForeignRecordToo", func(e *env) {
		s := e.bare()
		e.store.Occupy("n")
		_, err := s.Acquire(background,
			anykind.AcquireRequest{Name: "n", Owner: "a:1", Lease: long, Age: &backend.Age{Least: time.Millisecond}})
		for end := time.Now().Add(patience); err == nil && time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
			_, err = s.Acquire(background,
				anykind.AcquireRequest{Name: "n", Owner: "a:1", Lease: long, Age: &backend.Age{Least: time.Millisecond}})
		}
		e.is("Acquire", err, backend.ErrWrongKind)
	}},
})

func (e *env) knowsAge() bool {
	a := e.bare().Capabilities().Age
	return a != nil && a.KnowsAge()
}
