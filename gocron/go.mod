module github.com/mortise-go/mortise/gocron

go 1.26

require (
	github.com/go-co-op/gocron/v2 v2.16.1
	github.com/google/uuid v1.6.0
	github.com/mortise-go/mortise v0.0.0
	github.com/redis/go-redis/v9 v9.20.1
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/jonboulle/clockwork v0.5.0 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	go.uber.org/atomic v1.11.0 // indirect
)

replace github.com/mortise-go/mortise => ..
