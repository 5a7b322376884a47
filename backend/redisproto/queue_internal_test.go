package redisproto

import (
	"testing"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// Any client can publish on a lock's channel. A number of waiters below zero once crashed a waiter.
func TestWhatIsNoTurnIsARelease(t *testing.T) {
	const mine, other = "1234567", "7654321"
	for payload, want := range map[string]*backend.QueuePlace{
		other + "0000000" + "0003": {Waiting: 3},
		other + mine + "9999":      {Next: true, Waiting: 9999},
		mine + other + "0003":      nil,
		"2":                        nil,
		"":                         nil,
		other + "0000000" + "-001": nil,
		other + "0000000" + "-999": nil,
		other + "0000000" + "+001": nil,
		"not a turn, but 18":       nil,
		other + "0000000" + "00 3": nil,
		other + "\x000000000003":   nil,
	} {
		got, passed := placeIn(payload, mine)
		check.ErrorIf(t, passed != (want != nil) || want != nil && got != *want, "%q: %+v, %v; want %+v", payload, got,
			passed, want)
	}
}
