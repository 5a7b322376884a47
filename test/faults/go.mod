module github.com/mortise-go/mortise/test/faults

go 1.26

require (
	github.com/mortise-go/mortise v0.0.0
	github.com/redis/go-redis/v9 v9.20.1
	github.com/redis/rueidis v1.0.71
	go.uber.org/goleak v1.3.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace github.com/mortise-go/mortise => ../..
