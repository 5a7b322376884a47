module github.com/mortise-go/mortise/test/jobs

go 1.26.0

require (
	github.com/mortise-go/mortise v0.0.0-00010101000000-000000000000
	golang.org/x/sys v0.48.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/redis/go-redis/v9 v9.20.1 // indirect
	github.com/redis/rueidis v1.0.71 // indirect
	go.uber.org/atomic v1.12.0 // indirect
)

replace github.com/mortise-go/mortise => ../..
