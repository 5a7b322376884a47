package rueidis

import (
	"strings"

	"github.com/redis/rueidis"

	"github.com/mortise-go/mortise/backend"
)

func init() {
	for scheme, known := range map[string]string{"rueidis": "redis", "rueidiss": "rediss"} {
		backend.Register(scheme, func(address string) (backend.Backend, error) {
			opt, err := rueidis.ParseURL(known + strings.TrimPrefix(address, scheme))
			if err != nil {
				return nil, err
			}
			return New(opt), nil
		})
	}
}
