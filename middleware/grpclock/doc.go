// Package grpclock serves gRPC calls of one key one at a time, over all processes that
// share a store of locks: interceptors for unary calls and for streams.
//
//	grpc.NewServer(grpc.UnaryInterceptor(grpclock.UnaryServerInterceptor(locks, grpclock.Methods{
//		"/shop.v1.Orders/Ship":   grpclock.Fields("orders:{order.id}"),
//		"/shop.v1.Orders/Cancel": grpclock.Fields("orders:{order.id}"),
//	})))
//
// Here both methods share the lock of an order. Methods that are not listed pass without one. A method or
// field that does not exist is a panic when the program starts, so the generated code
// of the services must be linked in, as it is where they are registered.
//
// The call's context is that of its lease: it ends when the lock is lost, and with it a
// handler enters the lock again. [Lease] returns the lease, with its fencing token. A stream's Recv and
// Send return as well when the lock is lost, though the client sends nothing, or reads nothing.
//
// The keys make names of the text of a value. A handler that parses the text may take several for the
// same: 42, 042 and +42. [Canonical] makes one of them, for the lock and for the handler.
//
// A call holds its lock until its handler returns, and a client can keep a stream open for as long as
// it likes. By default nothing bounds that; mortise.WithMaxHold, by [WithLockOptions], does.
//
// # Modes
//
//	option                        a call whose lock is held
//	(none)                        is refused at once
//	WithWait(d)                   waits for d at most, and until its deadline
//	WithMaxClientWait()           waits until its deadline or its cancellation, 5 minutes at most
//	WithReaders(read, methods)    as above; these methods share the lock
//	WithFailOpen()                as above; is served UNLOCKED where the store is down
//
// # Answers
//
// Each status has an ErrorInfo with a reason and [Domain], and where it is worth repeating a RetryInfo. They
// say nothing of locks' names or of the store; [WithErrorHandler] replaces them.
//
//	what happened                                     code               reason             retry delay
//	another call holds the lock                       Aborted            LOCKED             its lease, 3 s at most
//	the store of locks is down                        Unavailable        STORE_UNAVAILABLE  1 s
//	the client of locks was shut down                 Unavailable        SHUTTING_DOWN      1 s
//	the deadline ended while it waited                DeadlineExceeded   TIMED_OUT
//	it was cancelled while it waited                  Canceled           CLIENT_GONE
//	a field or metadata is missing, or makes no key   InvalidArgument    BAD_KEY
//	the lock was lost, and the handler broke off      Aborted            LOCK_LOST          1 s
//	the lock was lost, and the handler answered       the handler's answer
//	its caller's lock, which it enters, has ended     FailedPrecondition DELEGATION_ENDED
//	misuse: a name in use for other data, an option   Internal           INTERNAL
//
// A holder may renew its lease, so the lock can be held for longer than the retry delay says; [WithRetryAfter] sets its
// bound. With BAD_KEY comes a BadRequest that names the field.
//
// A handler has broken off if it returns an error that is context.Canceled, has the code Canceled, or
// wraps mortise.ErrLost.
//
// The lock is released when the handler returns, before the answer is sent: also when it
// panics, or the client has gone. If Redis cannot be reached then, the answer waits for 2 s at most
// and the release is retried in the background; the lock ends with its lease at the latest.
//
// # One owner across services
//
// A handler that holds a lock and calls a service which takes the same one waits for itself.
// [UnaryClientInterceptor], at the caller, and [UnaryDelegationInterceptor], at the service, have it enter the
// caller's lock instead. Package delegation says what is sent.
package grpclock
