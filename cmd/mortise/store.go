package main

import (
	"github.com/mortise-go/mortise"
	// The stores that a URL can name.
	_ "github.com/mortise-go/mortise/backend/etcd"
	_ "github.com/mortise-go/mortise/backend/memory"
	_ "github.com/mortise-go/mortise/backend/postgres"
	_ "github.com/mortise-go/mortise/backend/sqlite"
	_ "github.com/mortise-go/mortise/backend/valkey"
	_ "github.com/mortise-go/mortise/redisgo"
	_ "github.com/mortise-go/mortise/rueidis"
)

// client returns a client of the store that the settings name.
func (s *settings) client(opts ...mortise.ClientOption) (*mortise.Client, error) {
	return s.clientOf(func(opts ...mortise.ClientOption) (*mortise.Client, error) {
		return mortise.Open(s.store, opts...)
	}, opts...)
}

// clientOf returns a client that open makes, with the settings.
func (s *settings) clientOf(
	open func(...mortise.ClientOption) (*mortise.Client, error), opts ...mortise.ClientOption,
) (*mortise.Client, error) {
	if err := s.resolve(); err != nil {
		return nil, err
	}
	if s.prefix != "" {
		opts = append(opts, mortise.WithPrefix(s.prefix))
	}
	return open(opts...)
}
