package valkey

import (
	"github.com/valkey-io/valkey-go"

	"github.com/mortise-go/mortise/backend"
)

func init() {
	for _, scheme := range []string{"valkey", "valkeys"} {
		backend.Register(scheme, func(address string) (backend.Backend, error) {
			opt, err := valkey.ParseURL(address)
			if err != nil {
				return nil, err
			}
			return New(opt), nil
		})
	}
}
