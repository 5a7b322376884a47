module github.com/mortise-go/mortise

go 1.26

require (
	github.com/redis/go-redis/v9 v9.20.1 // not older: docs/decisions/0013
	github.com/redis/rueidis v1.0.71
	github.com/yuin/gopher-lua v1.1.0
	go.uber.org/mock v0.6.0
	golang.org/x/tools v0.48.0
)

require (
	go.uber.org/fx v1.23.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/stretchr/testify v1.11.1 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	go.uber.org/dig v1.18.0 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	go.uber.org/zap v1.26.0 // indirect
	golang.org/x/mod v0.38.0 // indirect
	golang.org/x/net v0.58.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

tool go.uber.org/mock/mockgen
