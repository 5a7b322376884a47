// Package httplock serves HTTP requests with the same key one at a time, over all processes with
// the same store of locks. The package is middleware for net/http, and for routers with middleware
// of the form func(http.Handler) http.Handler, such as chi.
//
//	lock := httplock.New(locks, httplock.RouteKey("orders:{id}"))
//
//	mux.Handle("POST /orders/{id}/ship", lock(ship)) // http.ServeMux
//	router.With(lock).Post("/orders/{id}/ship", ship) // chi
//
// The request's context is the context of its lease: the context ends when the lock is lost, and a
// handler, or middleware within, enters the lock again with this context. [Lease] returns the
// lease, with its fencing token.
//
// # Modes
//
//	option                        a request whose lock is held                               read methods
//	(none)                        is refused at once                                         like the others
//	WithWait(d)                   waits for d at most                                        like the others
//	WithMaxClientWait()           waits for as long as its client does, 5 minutes at most    like the others
//	WithReaders(read)             as above                                                   share it; OPTIONS has none
//	WithFailOpen()                as above; is served UNLOCKED where the store is down       as above
//
// # Names
//
// The ready keys make names of the text of a value: of a path, of a header. A handler that parses
// the text may take several texts for the same value: 42, 042 and +42. {id:int} in a template makes a
// single text of them, for the lock and for the handler; without it each text is a lock of its own. Behind
// chi, a path value still percent-encoded is answered with 400.
//
// # Bounds
//
// A request holds its lock until its handler returns, for as long as its client takes to send the
// body and to read the answer. By default nothing bounds this time: a client that sends a byte a minute
// keeps the lock. So give the lock a bound, mortise.WithMaxHold, and the server timeouts:
//
//	lock := httplock.New(locks, key, httplock.WithLockOptions(mortise.WithMaxHold(30*time.Second)))
//	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 20 * time.Second,
//		WriteTimeout: 35 * time.Second, IdleTimeout: time.Minute}
//
// WriteTimeout runs from the end of the request's header. So WriteTimeout is longer than WithMaxHold, and,
// for requests that wait, longer than 10 s (for the body), [WithWait] and WithMaxHold together: otherwise
// a request that waited runs its handler, and its answer cannot be sent.
//
// When the lock is lost, by WithMaxHold for example, the request's context ends. A handler in a
// read of the body, or of a hijacked connection, gets an error at once, and so does each later read
// of the body. After the loss the handler's writes may take two seconds in all; then a write gets the
// error. A handler that is in no write then may return, or write its answer, at any later time; over
// HTTP/1 a copy by io.Copy counts as one write, with the reads of its source. If the request's context
// ended before, by chi's middleware.Timeout outside for example, the loss is noticed
// within 250 ms. These errors, and the bound on reading ahead ([WithWait]), need a ResponseWriter with
// deadlines in its http.ResponseController, as net/http's has. A request whose lock was lost leaves its
// connection usable for later requests, unless a read, or a write, was broken off.
//
// # Answers
//
// Answers are problem+json (RFC 9457) with the types in docs/reference/problems.md, and reveal
// neither names of locks nor anything of the store; [WithErrorHandler] replaces the answers.
//
//	what happened                                     status   type                 Retry-After
//	another request holds the lock                    423      TypeLocked           its lease, 3 s at most
//	the same, with WithStatus(409) (Idempotency-Key)  409      TypeLocked           the same
//	too many requests wait already, by WithMaxWaiters 429      TypeCrowded          3 s
//	the store of locks is down                        503      TypeUnavailable      1 s
//	the client of locks was shut down                 503      TypeClosing          1 s
//	the request's context ended with a cause          503      TypeClosing          1 s
//	the request's deadline ended while it waited      503      TypeTimeout          1 s
//	the client left while it waited                   499      TypeClientGone       (for the access log)
//	the request has no key, or a bad one              400      TypeBadKey
//	the lock was lost, and the handler wrote nothing  500      TypeLost
//	an outer middleware's lock was lost meanwhile     500      TypeLost
//	the lock was lost, and the handler answered       the handler's answer
//	the caller's lock, to be entered, has ended       412      TypeDelegationEnded
//	misuse: a name in use for other data, an option   500      TypeInternal
//
// With a Retry-After, nothing was done, and the client may send the request again. With TypeLost the handler had begun:
// a retry might do its work twice.
//
// A holder may renew its lease, so the lock can be held for longer than Retry-After says;
// [WithRetryAfter] sets its bound. After a loss, headers set by the handler for its own answer are
// not sent. The context that ends with a cause is usually http.Server.BaseContext, of signal.NotifyContext
// for example. Without a cause, a BaseContext that ends looks like a client that leaves: 499.
//
// # Releasing
//
// The lock is released when the handler returns, before the answer is complete: also after a panic,
// after the client has gone, after the connection was hijacked. If Redis is unreachable then, the
// answer waits for 2 s at most and the release is retried in the background; the lock ends with its
// lease at the latest. An answer of several KiB over HTTP/1 whose Content-Length the handler sets, as
// http.ServeContent and a reverse proxy do, is complete with its last byte, which can be before the
// release: the client's next request on another connection may still find the lock held.
//
// Work of a handler in another goroutine is not locked after the handler's return. So
// http.TimeoutHandler stands outside of the middleware: inside, it returns while its handler works
// on. An Idempotency-Key's lock keeps two requests with the same key apart; the handler itself has to
// remember the answer of the first.
//
// # One owner across services
//
// A handler with a lock that calls a service with the same lock waits for itself. With
// [NewTransport] at the caller, and [AcceptDelegations] at the service, the service enters the
// caller's lock instead. Package delegation describes the data sent.
//
// # Shutdown
//
// http.Server.Shutdown waits for handlers, and so for requests that wait for a lock. Shut the locks
// down with the server: waiting requests are then sent away, and the others finish:
//
//	srv.RegisterOnShutdown(func() { locks.Shutdown(ctx) })
//	go srv.ListenAndServe() // returns as soon as Shutdown begins
//	<-ctxOfTheSignal.Done()
//	srv.Shutdown(ctx) // returns when the handlers have; main must not return before
//
// # The ResponseWriter
//
// Handlers get a ResponseWriter with a record of whether the handler answered. The writer is an
// http.Flusher, http.Hijacker and io.ReaderFrom where the writer below is, and
// http.ResponseController works.
package httplock
