// Package playground is the code behind the page docs/playground: services and a store, each a program of its own in a
// Web Worker, and the messages between them. The package does not depend on a browser: the conformance suite runs over
// its messages.
//
// A [Service] is a client of mortise over a [Remote] store. A [Host] has the store, of package memory, and a [Ledger],
// the data that the lock protects. A [Link] is the calling end of a connection, a [Guest] the answering end.
package playground
