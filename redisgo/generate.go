package redisgo

//go:generate go run ../gen/cmd/mortise-gen commands -profile goredis -o commands_gen.go
