package grpclock_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/middleware/grpclock"
)

// A constructor of an interceptor panics at nil and zero values, with a text of its own: the server does not start.
func TestConstructorsPanicWithTheirOwnTextAtNilAndZeroValues(t *testing.T) {
	client, err := mortise.New(memory.New())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for name, call := range map[string]func(){
		"options of a server": func() { grpclock.ServerOptions(nil, grpclock.Methods{}) },
		"nil Locker":          func() { grpclock.UnaryServerInterceptor(nil, grpclock.Methods{}) },
		"nil option":          func() { grpclock.UnaryServerInterceptor(client, grpclock.Methods{}, nil) },
		"zero Key":            func() { grpclock.UnaryServerInterceptor(client, grpclock.Methods{"/a/b": {}}) },
		"stream, nil Locker":  func() { grpclock.StreamServerInterceptor(nil, grpclock.Methods{}) },
		"stream, nil option":  func() { grpclock.StreamServerInterceptor(client, grpclock.Methods{}, nil) },
		"delegations, nil":    func() { grpclock.UnaryDelegationInterceptor(nil, nil) },
		"stream delegations":  func() { grpclock.StreamDelegationInterceptor(nil, nil) },
		"nil Issuer":          func() { grpclock.UnaryClientInterceptor(nil, nil) },
		"stream, nil Issuer":  func() { grpclock.StreamClientInterceptor(nil, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				r := recover()
				if r == nil {
					t.Fatal("it did not panic")
				}
				if _, is := r.(runtime.Error); is || !strings.Contains(fmt.Sprint(r), "grpclock: ") {
					t.Errorf("the text of the panic does not name the package: %v", r)
				}
			}()
			call()
		})
	}
}
