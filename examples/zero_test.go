package examples

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	ruecli "github.com/redis/rueidis"
	"go.uber.org/fx"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/fxmodule"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/leader"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/middleware/httplock"
	"github.com/mortise-go/mortise/once"
	"github.com/mortise-go/mortise/quorum"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
	"github.com/mortise-go/mortise/semaphore"
)

// unmade are the values, of each exported type with methods, that a program has by mistake: nil, and the zero value.
var unmade = map[string][]any{
	"mortise.Client":      {(*mortise.Client)(nil), new(mortise.Client)},
	"latch.Latch":         {(*latch.Latch)(nil), new(latch.Latch)},
	"semaphore.Counting":  {(*semaphore.Counting)(nil), new(semaphore.Counting)},
	"semaphore.Semaphore": {(*semaphore.Semaphore)(nil), new(semaphore.Semaphore)},
	"semaphore.Permit":    {(*semaphore.Permit)(nil), new(semaphore.Permit)},
	"mortise.Lease":       {(*mortise.Lease)(nil), new(mortise.Lease)},
	"mortise.Error":       {(*mortise.Error)(nil), new(mortise.Error)},
	"mortise.Parts":       {mortise.Parts{}},
	"memory.Store":        {(*memory.Store)(nil), new(memory.Store)},
	"delegation.Issuer":   {(*delegation.Issuer)(nil), new(delegation.Issuer)},
	"delegation.Checker":  {(*delegation.Checker)(nil), new(delegation.Checker)},
	"delegation.Ring":     {(*delegation.Ring)(nil), new(delegation.Ring)},
	"delegation.Entry":    {delegation.Entry{}},
	"delegation.Key":      {delegation.Key{}},
	"leader.Term":         {leader.Term{}},
	"httplock.Problem":    {httplock.Problem{}},
}

// apart are products in modules of their own, which test their zero values themselves.
var apart = []string{
	"backend/etcd", "backend/postgres", "backend/sqlite", "backend/valkey", "gocron", "middleware/grpclock",
	"middleware/telemetry",
}

// kept is which results of methods of unmade values are right though they are no error.
var kept = map[string]string{
	"mortise.Error.Unwrap":   "a zero Error wraps nothing",
	"memory.Store.Open":      "mortise.New wraps it in ErrInvalid",
	"delegation.Ring.Rotate": "it gives a zero Ring its keys; the key is the zero one",
}

// A method of a nil or zero value returns an error that says what to do, and does not panic or hang.
func TestNilAndZeroValuesAnswerAnError(t *testing.T) {
	found := make(map[string]bool)
	for _, dir := range append(slices.Clone(products), "backend/memory") {
		if !slices.Contains(apart, dir) {
			withMethods(t, dir, found)
		}
	}
	for name := range found {
		if len(unmade[name]) == 0 {
			t.Errorf("%s has methods, and the test has no nil or zero value of it", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(unmade)) {
		if !found[name] {
			t.Errorf("%s: no such type with methods", name)
		}
		for i, v := range unmade[name] {
			for m := range reflect.TypeOf(v).NumMethod() {
				method := name + "." + reflect.TypeOf(v).Method(m).Name
				t.Run(fmt.Sprintf("%s/%d", method, i), func(t *testing.T) {
					answersAnError(t, method, reflect.ValueOf(v).Method(m))
				})
			}
		}
	}
}

// withMethods adds the exported types of a package that have exported methods.
func withMethods(t *testing.T, dir string, found map[string]bool) {
	t.Helper()
	for _, file := range sources(t, dir) {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || !f.Name.IsExported() {
				continue
			}
			of := f.Recv.List[0].Type
			if p, is := of.(*ast.StarExpr); is {
				of = p.X
			}
			if x, is := of.(*ast.Ident); is && x.IsExported() {
				found[file.Name.Name+"."+x.Name] = true
			}
		}
	}
}

func answersAnError(t *testing.T, name string, method reflect.Value) {
	errs := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				errs <- fmt.Errorf("it panicked: %v", r)
			}
		}()
		errs <- called(method)
	}()
	select {
	case err := <-errs:
		var stop runtime.Error
		switch {
		case errors.As(err, &stop), err != nil && strings.HasPrefix(err.Error(), "it panicked"):
			t.Error(err)
		case err == errNone, kept[name] != "":
		case err == nil:
			t.Error("it returned no error")
		case !errors.Is(err, mortise.ErrInvalid) && !errors.Is(err, mortise.ErrLost):
			t.Errorf("got %q, want an error that wraps ErrInvalid, or for a lease ErrLost", err)
		case !strings.Contains(err.Error(), "nil") && !strings.Contains(err.Error(), "zero"):
			t.Errorf("the text does not say that the value is nil or zero: %q", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it hangs")
	}
}

// errNone: a method has no error among its results.
var errNone = errors.New("none")

// called calls a method with arguments of its types, and returns its error.
func called(method reflect.Value) error {
	var in []reflect.Value
	of := method.Type()
	for i := range of.NumIn() {
		if of.IsVariadic() && i == of.NumIn()-1 && of.In(i).Elem().Kind() != reflect.String {
			break
		}
		in = append(in, argument(of.In(i)))
	}
	call := method.Call
	if of.IsVariadic() && len(in) == of.NumIn() {
		call = method.CallSlice
	}
	for _, out := range call(in) {
		switch x := out.Interface().(type) {
		case error:
			return x
		}
		if out.Type() == reflect.TypeFor[error]() {
			return nil
		}
	}
	return errNone
}

func argument(of reflect.Type) reflect.Value {
	var v any
	switch of {
	case reflect.TypeFor[context.Context]():
		v = context.Background()
	case reflect.TypeFor[backend.Handler]():
		return reflect.Zero(of)
	case reflect.TypeFor[string]():
		v = "x"
	case reflect.TypeFor[[]string]():
		v = []string{strings.Repeat("0", 40), strings.Repeat("1", 40)}
	case reflect.TypeFor[http.ResponseWriter]():
		return reflect.ValueOf(httptest.NewRecorder())
	case reflect.TypeFor[int]():
		v = 1
	case reflect.TypeFor[int64]():
		v = int64(1)
	case reflect.TypeFor[*http.Request]():
		v, _ = http.NewRequest(http.MethodGet, "http://localhost", nil)
	default:
		return reflect.Zero(of)
	}
	return reflect.ValueOf(v)
}

// A constructor or a function returns ErrInvalid for a nil argument and for a nil option; those of the middleware panic
// with a text, when the program starts.
func TestNilArgumentsAndOptionsAnswerAnError(t *testing.T) {
	ctx, store := context.Background(), memory.New()
	client, err := mortise.New(store)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ring, err := delegation.NewRing(delegation.NewKey("k", []byte("0123456789abcdef0123456789abcdef")))
	if err != nil {
		t.Fatal(err)
	}
	key := func(*http.Request) (string, error) { return "x", nil }
	term := func(context.Context, leader.Term) error { return nil }
	tick := func(context.Context, time.Time) {}
	var none *mortise.Client
	second := func(_ any, err error) error { return err }
	began := func(o fx.Option) error { return fx.New(o, fx.NopLogger).Err() }
	observe := func(c *mortise.Client) error {
		for _, err := range leader.Observe(ctx, c, "x") {
			return err
		}
		return nil
	}
	for name, call := range map[string]func() error{
		"mortise.New(nil)":            func() error { return second(mortise.New(nil)) },
		"mortise.New of a nil Store":  func() error { return second(mortise.New((*memory.Store)(nil))) },
		"mortise.New of a zero Store": func() error { return second(mortise.New(new(memory.Store))) },
		"LockAll of nil": func() error {
			return second(mortise.Parts{}.And(nil, "x").Lock(ctx))
		},
		"Do of nil": func() error {
			return mortise.Do(ctx, nil, "x", func(context.Context) error { return nil })
		},
		"Do, nil function": func() error { return mortise.Do(ctx, client, "x", nil) },
		"Quorum of nil":    func() error { return second(quorum.New(nil, nil, nil)) },
		"redisgo.New(nil)": func() error { return second(mortise.New(redisgo.New(nil))) },
		"redisgo.New of a nil client": func() error {
			return second(mortise.New(redisgo.New((*goredis.Client)(nil))))
		},
		"redisgo.New, nil option": func() error {
			return second(mortise.New(redisgo.New(goredis.NewClient(&goredis.Options{}), nil)))
		},
		"rueidis.NewWithClient(nil)": func() error {
			return second(mortise.New(rueidis.NewWithClient(nil)))
		},
		"rueidis.New without an address": func() error {
			return second(mortise.New(rueidis.New(ruecli.ClientOption{})))
		},
		"leader.Run(nil)":                 func() error { return leader.Run(ctx, nil, "x", term) },
		"leader.Run of a nil Client":      func() error { return leader.Run(ctx, none, "x", term) },
		"leader.Run, nil function":        func() error { return leader.Run(ctx, client, "x", nil) },
		"leader.Run, nil option":          func() error { return leader.Run(ctx, client, "x", term, nil) },
		"leader.Observe(nil)":             func() error { return observe(nil) },
		"leader.Observe of a zero Client": func() error { return observe(new(mortise.Client)) },
		"leader.Current(nil)":             func() error { return second(leader.Current(ctx, nil, "x")) },
		"leader.Proclaim(nil)":            func() error { return leader.Proclaim(ctx, nil, "x") },
		"once.Every(nil)":                 func() error { return once.Every(ctx, nil, "x", time.Minute, tick) },
		"once.Every of a zero Client": func() error {
			return once.Every(ctx, new(mortise.Client), "x", time.Minute, tick)
		},
		"once.TryTick(nil)": func() error { return second(once.TryTick(ctx, nil, "x", once.TickRequest{})) },
		"once.Every, nil function": func() error {
			return once.Every(ctx, client, "x", time.Minute, nil)
		},
		"once.Every, nil option": func() error {
			return once.Every(ctx, client, "x", time.Minute, tick, nil)
		},
		"delegation.NewIssuer(nil)": func() error { return second(delegation.NewIssuer(nil)) },
		"delegation.NewIssuer, zero option": func() error {
			return second(delegation.NewIssuer(ring, delegation.Option{}))
		},
		"delegation.NewChecker(nil)": func() error { return second(delegation.NewChecker(nil, "a")) },
		"delegation.NewChecker, zero option": func() error {
			return second(delegation.NewChecker(ring, "a", delegation.Option{}))
		},
		"delegation.NewRing of a zero Key": func() error { return second(delegation.NewRing(delegation.Key{})) },
		"fxmodule.Memory, nil option":      func() error { return began(fxmodule.Memory(nil)) },
		"fxmodule.Observe(nil)":            func() error { return began(fxmodule.Observe(nil)) },
		"httplock.New(nil)":                func() error { httplock.New(nil, key); return nil },
		"httplock.New, nil key":            func() error { httplock.New(client, nil); return nil },
		"httplock.New, nil option":         func() error { httplock.New(client, key, nil); return nil },
		"httplock.AcceptDelegations(nil)":  func() error { httplock.AcceptDelegations(nil, nil); return nil },
		"httplock.NewTransport(nil)":       func() error { httplock.NewTransport(nil, nil, nil); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				switch r := recover().(type) {
				case nil:
				case runtime.Error:
					t.Errorf("it panicked without a text of its own: %v", r)
				default:
					if text := fmt.Sprint(r); !strings.Contains(text, "lock: ") {
						t.Errorf("the text of the panic does not name the package: %q", text)
					}
				}
			}()
			err := call()
			if strings.Contains(name, "lock.") || strings.Contains(name, "lock,") {
				t.Error("it did not panic")
			} else if !errors.Is(err, mortise.ErrInvalid) {
				t.Errorf("got %v, want an error that wraps ErrInvalid", err)
			}
		})
	}
}
