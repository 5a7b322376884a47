module github.com/mortise-go/mortise/console

go 1.26

require (
	github.com/mortise-go/mortise v0.0.0
	github.com/redis/go-redis/v9 v9.20.1
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

replace github.com/mortise-go/mortise => ..
