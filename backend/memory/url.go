package memory

import (
	"strings"
	"sync"

	"github.com/mortise-go/mortise/backend"
)

// named has the stores of URLs with a name.
var named sync.Map

func init() {
	backend.Register("memory", func(address string) (backend.Backend, error) {
		name := strings.TrimPrefix(address, "memory:")
		if name == "" {
			return New(), nil
		}
		s, _ := named.LoadOrStore(name, New())
		return s.(*Store), nil
	})
}
