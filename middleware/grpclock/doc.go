// Package grpclock serves gRPC calls with the same key one at a time, over all processes with the
// same store of locks: interceptors for unary calls and for streams.
//
//	grpc.NewServer(grpclock.ServerOptions(locks, grpclock.Methods{
//		"/shop.v1.Orders/Ship":   grpclock.Fields("orders:{order.id}"),
//		"/shop.v1.Orders/Cancel": grpclock.Fields("orders:{order.id}"),
//	})...)
//
// Here both methods share the lock of an order. Unlisted methods pass without a lock. An unknown
// method or field is a panic when the program starts, so the generated code of the services must be
// linked in; a program that registers the services has the code anyway.
//
// The call's context is the context of its lease: the context ends when the lock is lost, and a
// handler enters the lock again with this context. [Lease] returns the lease, with its fencing
// token.
//
// A stream's Recv and Send return when the lock is lost, even if the client sends nothing, or reads
// nothing; within 250 ms, if the stream's own context ended before the loss. A message that arrives
// after the loss is not handed to the handler. A message of a locked stream costs no command and no goroutine.
//
// The keys make names of the text of a value. A handler that parses the text may take several texts
// for the same value: 42, 042 and +42. {id:int} in a template makes a single text of them, for the lock
// and for the handler.
//
// A call holds its lock until its handler returns, and a client can keep a stream open without
// limit. By default nothing bounds this time; mortise.WithMaxHold, by [WithLockOptions], does.
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
// Each status has an ErrorInfo with a reason and [Domain], and a RetryInfo where a retry makes
// sense. Statuses reveal neither names of locks nor anything of the store; [WithErrorHandler]
// replaces them.
//
//	what happened                                     code               reason             retry delay
//	another call holds the lock                       Aborted            LOCKED             its lease, 3 s at most
//	too many calls wait already, by WithMaxWaiters    ResourceExhausted  TOO_MANY_WAITING   3 s
//	the store of locks is down                        Unavailable        STORE_UNAVAILABLE  1 s
//	the client of locks was shut down                 Unavailable        SHUTTING_DOWN      1 s
//	the deadline ended while the call waited          DeadlineExceeded   TIMED_OUT
//	the call was cancelled while it waited            Canceled           CLIENT_GONE
//	a field or metadata is missing, or makes no key   InvalidArgument    BAD_KEY
//	the lock was lost, and the handler broke off      Unknown            LOCK_LOST
//	the lock was lost, and the handler answered       the handler's answer
//	an outer interceptor's lock was lost meanwhile    Unknown            LOCK_LOST
//	the caller's lock, to be entered, has ended       FailedPrecondition DELEGATION_ENDED
//	misuse: a name in use for other data, an option   Internal           INTERNAL
//
// With Aborted, Unavailable and ResourceExhausted, nothing was done. With LOCK_LOST the handler had begun, and a retry
// might do its work twice. gRPC itself answers Unavailable if a connection breaks, perhaps after the handler has begun:
// so a client's retry policy names Aborted only (docs/how-to/grpc.md).
//
// A holder may renew its lease, so the lock can be held for longer than the retry delay says; [WithRetryAfter] sets its
// bound. With BAD_KEY comes a BadRequest that names the field. A client cancels its call at the deadline, too: a
// cancellation counts as TIMED_OUT from 10 ms before the deadline.
//
// A handler has broken off if the handler returns context.Canceled, an error with the code
// Canceled, or an error that wraps mortise.ErrLost. The loss itself ends a stream whose handler is in
// Recv or Send: the client is answered at once, and what the handler returns is not sent. Behind
// grpc.Server.ServeHTTP the handler answers in this case too, and each message costs a goroutine.
//
// The lock is released when the handler returns, before the answer is sent: also after a panic, or
// after the client has gone. If Redis is unreachable then, the answer waits for 2 s at most and the
// release is retried in the background; the lock ends with its lease at the latest.
//
// # One owner across services
//
// A handler that holds a lock and calls a service with the same lock waits for itself. With
// [UnaryClientInterceptor] at the caller, and [UnaryDelegationInterceptor] at the service, the
// service enters the caller's lock instead. Package delegation describes the data sent.
package grpclock
