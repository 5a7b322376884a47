package backendtest

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// ageTests are about stores that know since when they have their data. They do nothing on a
// backend that does not.
var ageTests = []test{
	{"Port_AStoreThatWasEmptiedRefusesUntilItIsOldEnough", func(e *env) {
		s, _ := e.session()
		if a, has := s.Session.(backend.AgeSession); !has || !a.KnowsAge() {
			return
		}
		ask := func(owner string, age time.Duration) backend.AcquireReply {
			e.Helper()
			r, err := s.Acquire(context.Background(), backend.AcquireRequest{Name: "n", Owner: owner, Lease: long, Age: &backend.Age{Least: age}})
			if err != nil {
				e.Fatalf("Acquire: %v", err)
			}
			if r.Young && (r.Granted || r.Remaining <= 0 || r.Remaining > age) {
				e.Fatalf("%+v, want Remaining up to %v", r, age)
			}
			return r
		}
		const age = time.Second
		emptied := time.Now()
		e.store.Flush()
		if r := ask("a:1", long); !r.Young {
			e.Fatalf("an empty store is as old as it likes: %+v", r)
		}
		s.take("n", "b:1", long) // who does not ask
		if r := ask("a:1", long); !r.Young {
			e.Errorf("refused as %+v, want it young though another holds the lock", r)
		}
		if r := ask("b:1", long); !r.Granted {
			e.Errorf("an owner that holds the lock is refused: %+v", r)
		}
		s.release("n", "b:1", 0)
		for r := ask("a:1", age); !r.Granted; r = ask("a:1", age) {
			if !r.Young {
				e.Fatalf("refused as %+v, want it young", r)
			}
			time.Sleep(min(r.Remaining+time.Millisecond, patience)) // that time is the subject
			if time.Since(emptied) > patience {
				e.Fatalf("not granted %v after it was emptied", patience)
			}
		}
		if d := time.Since(emptied); d < age {
			e.Errorf("granted %v after the store was emptied, want %v", d, age)
		}
		if r := ask("a:1", age); !r.Granted {
			e.Errorf("the same request again: %+v", r)
		}
		if rec := s.record("n"); rec.Owner != "a:1" || rec.Holds != 1 {
			e.Errorf("the record is %+v", rec)
		}
		if r := ask("c:1", age); r.Granted || r.Young || r.Remaining <= 0 {
			e.Errorf("of another's lock: %+v", r)
		}
		s.release("n", "a:1", 0)
		if r := ask("c:1", age); !r.Granted {
			e.Errorf("of a free lock on a store that is old enough: %+v", r)
		}
		e.store.Flush()
		if r := ask("d:1", long); !r.Young {
			e.Errorf("once it was emptied again: %+v", r)
		}
	}},
	{"Port_AStoreThatWasEmptiedIsYoungInEachScope", func(e *env) {
		s, _ := e.session()
		if a, has := s.Session.(backend.AgeSession); !has || !a.KnowsAge() {
			return
		}
		ask := func(scope string, age time.Duration) backend.AcquireReply {
			e.Helper()
			r, err := s.Acquire(context.Background(), backend.AcquireRequest{Name: "n" + scope, Owner: "a:1", Lease: long, Age: &backend.Age{Least: age, Scope: scope}})
			if err != nil {
				e.Fatalf("Acquire: %v", err)
			}
			return r
		}
		e.store.Flush()
		scopes := []string{"", "orders", "orders:eu", "{x}"}
		for _, scope := range scopes {
			if r := ask(scope, long); !r.Young {
				e.Errorf("scope %q: an empty store is as old as it likes: %+v", scope, r)
			}
		}
		for _, scope := range scopes {
			e.until("it is old enough", func() bool { return ask(scope, time.Second).Granted })
		}
	}},
	{"Port_AnAgeIsAskedOfAForeignRecordToo", func(e *env) {
		s, _ := e.session()
		if a, has := s.Session.(backend.AgeSession); !has || !a.KnowsAge() {
			return
		}
		e.store.Occupy("n")
		_, err := s.Acquire(context.Background(), backend.AcquireRequest{Name: "n", Owner: "a:1", Lease: long, Age: &backend.Age{Least: time.Millisecond}})
		for end := time.Now().Add(patience); err == nil && time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
			_, err = s.Acquire(context.Background(), backend.AcquireRequest{Name: "n", Owner: "a:1", Lease: long, Age: &backend.Age{Least: time.Millisecond}})
		}
		e.is("Acquire", err, backend.ErrWrongKind)
	}},
}
