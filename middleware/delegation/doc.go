// Package delegation lets the owner of a lock travel with a call to another service, so that what is called enters the
// caller's lock instead of waiting for it for ever:
//
//	ring, err := delegation.NewRing(delegation.NewKey("2026-11", secret)) // the same at both
//
//	// The caller: what it sends to https://stock.internal while it holds locks says so.
//	issuer, err := delegation.NewIssuer(ring)
//	origins := httplock.Origins{"https://stock.internal": "stock"}
//	client := &http.Client{Transport: httplock.NewTransport(nil, issuer, origins)}
//	req, err := http.NewRequestWithContext(lease.Context(), "POST", "https://stock.internal/reserve", body)
//
//	// The callee: requests that say so enter the locks of locks.
//	checker, err := delegation.NewChecker(ring, "stock", delegation.WithLogger(logger))
//	handler = httplock.AcceptDelegations(locks, checker)(handler)
//
// Nothing is sent to a service that is not named, and nothing is taken up by a service that did not ask. For
// gRPC, grpclock has the same as interceptors. Other transports carry the text that [Issuer.Issue] makes, and
// hand it to [Checker.Accept].
//
// # What an entry is
//
// One line of text in the header [Header], of about 200 bytes and [MaxEntry] at most: a few delegations
// ([mortise.Delegation]), signed (HMAC-SHA-256 by a [Ring] of keys), made out to one service, for half a minute at
// most. It says that its bearer calls on behalf of a holder of these locks. It is no authentication of the call:
// what that does with requests from strangers it has to do still.
//
// It is good until it expires, to get in: what the callee locks afterwards, it locks for as long as the caller's
// hold lasts, which the store knows. After that the delegation confers nothing: Lock returns
// [mortise.ErrDelegationEnded].
//
// docs/explanation/threat-model.md says which service is trusted with what, and what each attack comes to.
package delegation
