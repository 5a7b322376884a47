// Package middleware has what the middlewares of this project are made of, for those who write another: one for a
// router, a queue of messages or a protocol that [httplock] and [grpclock] do not know.
//
//   - [ParseTemplate] makes lock names out of values that clients choose, so that no client chooses another's name.
//   - [Limit] bounds how many requests wait.
//   - [AskStore] marks a request whose refusal its client sees: it is refused by the store's answer only.
//   - [AwaitLoss] and [IsLoss] tell a handler's lost lock from a handler that has ended.
//
// None of them sends a command.
//
// [httplock]: https://pkg.go.dev/github.com/mortise-go/mortise/middleware/httplock
// [grpclock]: https://pkg.go.dev/github.com/mortise-go/mortise/middleware/grpclock
package middleware
