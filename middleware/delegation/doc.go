// Package delegation lets the owner of a lock travel with a call to another service, so the called
// service enters the caller's lock instead of waiting for the lock forever:
//
//	ring, err := delegation.NewRing(delegation.NewKey("2026-11", secret)) // the same at both
//
//	// The caller: requests to https://stock.internal under a lease name the lease's locks.
//	issuer, err := delegation.NewIssuer(ring)
//	origins := httplock.Origins{"https://stock.internal": "stock"}
//	client := &http.Client{Transport: httplock.NewTransport(nil, issuer, origins)}
//	req, err := http.NewRequestWithContext(lease.Context(), "POST", "https://stock.internal/reserve", body)
//
//	// The callee: such requests enter the callers' locks.
//	checker, err := delegation.NewChecker(ring, "stock", delegation.WithLogger(logger))
//	handler = httplock.AcceptDelegations(locks, checker)(handler)
//
// An issuer sends entries to named services only, and a service without a checker ignores entries.
// For gRPC, grpclock has the same as interceptors. Other transports carry the text of
// [Issuer.Issue], and hand the text to [Checker.Accept].
//
// # What an entry is
//
// An entry is a line of text in the header [Header], of about 200 bytes and [MaxEntry] at most: a
// few delegations ([Delegation]), signed (HMAC-SHA-256 by a [Ring] of keys), made out to
// one service, for half a minute at most. An entry says that its bearer calls on behalf of a holder
// of these locks. An entry does not authenticate the call: the service still has to defend itself
// against requests from strangers.
//
// An entry can be accepted until its expiry. An accepted delegation lets the callee lock for as long
// as the caller's hold lasts, as the store knows. After the end of the hold the delegation confers
// nothing: Lock returns [ErrEnded].
//
// docs/explanation/threat-model.md describes the trust in each service, and the effect of each
// attack.
package delegation
