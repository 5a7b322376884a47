module github.com/mortise-go/mortise/test/fuzz

go 1.26.0

replace github.com/mortise-go/mortise => ../..

require (
	github.com/mortise-go/mortise v0.0.0-00010101000000-000000000000
	github.com/redis/go-redis/v9 v9.20.1
	github.com/redis/rueidis v1.0.71
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
