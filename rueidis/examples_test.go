package rueidis_test

import (
	"testing"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// The examples of the documentation, on a server, a cluster, behind sentinels and by TLS. They panic at an error.
func TestTheExamplesRun(t *testing.T) {
	check.Long(t)
	redistest.Environment(t)
	ExampleNew()
	ExampleNew_cluster()
	ExampleNew_sentinel()
	ExampleNew_tls()
}
