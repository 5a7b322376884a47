package main

import (
	"fmt"
	"net/url"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/backend/postgres"
	"github.com/mortise-go/mortise/redisgo"
)

// open returns a client of the store at a URL.
func open(address string, opts ...mortise.ClientOption) (*mortise.Client, error) {
	if address == "" {
		return nil, &coded{codeUsage, fmt.Errorf("which store? set MORTISE_STORE, or --store redis://localhost:6379")}
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, &coded{codeUsage, fmt.Errorf("the store's URL: %w", err)}
	}
	var store backend.Backend
	switch u.Scheme {
	case "redis", "rediss", "unix":
		o, err := redis.ParseURL(address)
		if err != nil {
			return nil, &coded{codeUsage, fmt.Errorf("the store's URL: %w", err)}
		}
		store = redisgo.New(redis.NewClient(o))
	case "postgres", "postgresql":
		store = postgres.New(address)
	case "memory":
		store = memory.New() // for a first try: no other process sees it
	default:
		return nil, &coded{codeUsage, fmt.Errorf("the store %q: the URL begins with redis:, rediss:, unix:, memory: "+
			"or postgres: as its scheme", address)}
	}
	return mortise.New(store, opts...)
}
