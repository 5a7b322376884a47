package redisgo

//go:generate go run ../gen/cmd/mortise-gen commands -profile goredis -sending sending_gen.go
//go:generate go run ../gen/cmd/mortise-gen adapter -profile goredis
