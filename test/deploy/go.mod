module github.com/mortise-go/mortise/test/deploy

go 1.26

require (
	github.com/mortise-go/mortise v0.0.0
	github.com/mortise-go/mortise/backend/valkey v0.0.0
	github.com/redis/go-redis/v9 v9.20.1
	github.com/valkey-io/valkey-go v1.0.79
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/redis/rueidis v1.0.71 // indirect
	github.com/stretchr/testify v1.8.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace (
	github.com/mortise-go/mortise => ../..
	github.com/mortise-go/mortise/backend/valkey => ../../backend/valkey
)
