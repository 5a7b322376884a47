package middleware

import (
	"context"

	"github.com/mortise-go/mortise/internal/asked"
)

// AskStore returns a child of ctx. A TryLock with it is refused by the store's answer only, never by what the client
// remembers of an answer before: without it, a backend with client-side caching may refuse without a command. It is for
// calls whose refusal is passed on at once, to a client that may know that the lock is free by now.
func AskStore(ctx context.Context) context.Context { return asked.Context(ctx) }
