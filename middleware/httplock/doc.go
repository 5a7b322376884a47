// Package httplock serves HTTP requests of one key one at a time, over all processes that
// share a store of locks. It is middleware for net/http, and for routers that take
// func(http.Handler) http.Handler, chi for one.
//
//	lock := httplock.New(locks, httplock.RouteKey("orders:{id}"))
//
//	mux.Handle("POST /orders/{id}/ship", lock(ship)) // http.ServeMux
//	router.With(lock).Post("/orders/{id}/ship", ship) // chi
//
// The request's context is that of its lease: it ends when the lock is lost, and with it
// a handler, or middleware within, enters the lock again. [Lease] returns the lease, with its fencing token.
//
// # Modes
//
//	option                        a request whose lock is held                               read methods
//	(none)                        is refused at once                                         like the others
//	WithWait(d)                   waits for d at most                                        like the others
//	WithMaxClientWait()           waits for as long as its client does, 5 minutes at most    like the others
//	WithReaders(read)             as above                                                   GET and HEAD share the lock
//	WithFailOpen()                as above; is served UNLOCKED where the store is down       as above
//
// # Names
//
// The ready keys make names of the text of a value: of a path, of a header. A handler that parses the
// text may take several for the same: 42, 042 and +42. [Canonical] makes one of them, for the lock
// and for the handler; without it those are several locks. Behind chi, a path value that is still
// percent-encoded is answered with 400.
//
// # Bounds
//
// A request holds its lock until its handler returns, for as long as its client takes to send the
// body and to read the answer. By default nothing bounds that: a client that sends a byte a minute
// keeps the lock. So give the lock a bound, mortise.WithMaxHold, and the server timeouts:
//
//	lock := httplock.New(locks, key, httplock.WithLockOptions(mortise.WithMaxHold(30*time.Second)))
//	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 20 * time.Second,
//		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute}
//
// When the lock is lost, by WithMaxHold for one, the request's context ends, a handler that reads the
// body, or a hijacked connection, gets an error at once, and one that writes gets it two seconds
// later. That, and the bound on reading ahead ([WithWait]), need a ResponseWriter whose
// http.ResponseController has deadlines, as net/http's has.
//
// # Answers
//
// They are problem+json (RFC 9457) with the types in docs/reference/problems.md, and say nothing of locks' names or of
// the store; [WithErrorHandler] replaces them.
//
//	what happened                                     status   type                 Retry-After
//	another request holds the lock                    423      TypeLocked           its lease, 3 s at most
//	the same, with WithStatus(409) (Idempotency-Key)  409      TypeLocked           the same
//	the store of locks is down                        503      TypeUnavailable      1 s
//	the client of locks was shut down                 503      TypeClosing          1 s
//	the request's deadline ended while it waited      503      TypeTimeout          1 s
//	the client left while it waited                   499      TypeClientGone       (for the access log)
//	the request has no key, or a bad one              400      TypeBadKey
//	the lock was lost, and the handler wrote nothing  503      TypeLost             1 s
//	the lock was lost, and the handler answered       the handler's answer
//	its caller's lock, which it enters, has ended     412      TypeDelegationEnded
//	misuse: a name in use for other data, an option   500      TypeInternal
//
// A holder may renew its lease, so the lock can be held for longer than Retry-After says;
// [WithRetryAfter] sets its bound.
//
// # Releasing
//
// The lock is released when the handler returns, before the answer is complete: also when
// it panics, when the client has gone, when the connection was hijacked. If Redis cannot be
// reached then, the answer waits for 2 s at most and the release is retried in the
// background; the lock ends with its lease at the latest.
//
// Work that a handler leaves to a goroutine is not locked. An Idempotency-Key's lock keeps two requests with it
// apart; to remember the answer of the first is up to the handler.
//
// # One owner across services
//
// A handler that holds a lock and calls a service which takes the same one waits for itself. [NewTransport], at
// the caller, and [AcceptDelegations], at the service, have it enter the caller's lock instead. Package delegation
// says what is sent.
//
// # Shutdown
//
// http.Server.Shutdown waits for handlers, and so for requests that wait for a lock.
// Have the locks shut down with it, which sends those away and lets the others finish:
//
//	srv.RegisterOnShutdown(func() { locks.Shutdown(ctx) })
//	go srv.ListenAndServe() // returns as soon as Shutdown begins
//	<-ctxOfTheSignal.Done()
//	srv.Shutdown(ctx) // returns when the handlers have; main must not return before
//
// # The ResponseWriter
//
// Handlers get one that notices whether they answered. It is an http.Flusher, http.Hijacker
// and io.ReaderFrom where the one below is, and http.ResponseController works.
package httplock
