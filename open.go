package mortise

import (
	"errors"
	"strings"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/fail"
)

// packages are those that register a scheme, for the remedy of a missing import.
var packages = map[string]string{
	"memory": "backend/memory", "sqlite": "backend/sqlite",
	"etcd": "backend/etcd", "etcds": "backend/etcd",
	"postgres": "backend/postgres", "postgresql": "backend/postgres",
	"redis": "redisgo", "rediss": "redisgo", "redis+cluster": "redisgo", "rediss+cluster": "redisgo",
	"redis+sentinel": "redisgo", "rediss+sentinel": "redisgo", "redis+unix": "redisgo",
	"rueidis": "rueidis", "rueidiss": "rueidis", "valkey": "backend/valkey", "valkeys": "backend/valkey",
}

// Open makes a client of the store at a URL, for programs that are told their store by configuration. As with
// database/sql, the program imports the packages of the stores that it knows:
//
//	import _ "github.com/mortise-go/mortise/redisgo"
//
//	locks, err := mortise.Open(os.Getenv("LOCK_STORE")) // redis://localhost:6379
//
//	URL                                              package           store
//	redis://user:password@host:6379/0, rediss:       redisgo           Redis or Valkey, rediss: by TLS
//	redis+cluster://host:6379?addr=host2:6379        redisgo           a cluster
//	redis+sentinel://host:26379?master_name=m        redisgo           the master that sentinels name
//	redis+unix:///run/redis.sock                     redisgo           by a socket
//	rueidis://host:6379, rueidiss:                   rueidis           the same, also a cluster; with client-side caching
//	valkey://host:6379, valkeys:                     backend/valkey    the same, by valkey-go
//	postgres://user:password@host/database           backend/postgres  PostgreSQL
//	etcd://host:2379,host2:2379/prefix, etcds:       backend/etcd      etcd, etcds: by TLS
//	sqlite:/var/lib/shop/locks.db                    backend/sqlite    a file, for the processes of one machine
//	memory:, memory:name                             backend/memory    this process; of one name, one store
//
// Query parameters are those of the client library. Open does no I/O: [Client.Ping] and [Client.Check] do. The
// connections are the client's own, and closed with it. Errors wrap [ErrInvalid]: a URL that is not understood, or a
// scheme without its package; none has the URL's password. The costs are those of [New].
func Open(url string, opts ...ClientOption) (*Client, error) {
	b, err := backend.ByURL(url)
	if errors.Is(err, backend.ErrNoScheme) {
		scheme, _, _ := strings.Cut(url, ":")
		remedy := "the program knows " + strings.Join(backend.Schemes(), ", ")
		if p := packages[scheme]; p != "" {
			remedy = `import _ "github.com/mortise-go/mortise/` + p + `"`
		}
		return nil, fail.New("open", "", fail.Invalidf("%w; %s", err, remedy))
	}
	if err != nil {
		return nil, fail.New("open", "", fail.Invalidf("%w", err))
	}
	return New(b, opts...)
}
