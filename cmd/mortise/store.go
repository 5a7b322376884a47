package main

import (
	"errors"

	"github.com/mortise-go/mortise"
	// The stores that a URL can name.
	_ "github.com/mortise-go/mortise/backend/memory"
	_ "github.com/mortise-go/mortise/backend/postgres"
	_ "github.com/mortise-go/mortise/backend/sqlite"
	_ "github.com/mortise-go/mortise/redisgo"
)

// open returns a client of the store at a URL.
func open(address string, opts ...mortise.ClientOption) (*mortise.Client, error) {
	if address == "" {
		return nil, &coded{codeUsage, errors.New("which store? set MORTISE_STORE, or --store redis://localhost:6379")}
	}
	return mortise.Open(address, opts...)
}
