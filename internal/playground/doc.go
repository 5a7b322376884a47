// Package playground is what runs in the page docs/playground: services and a store that are programs of their own,
// each in a Web Worker, and the messages between them. Nothing in it depends on a browser, so it is tested like the
// rest: the conformance suite runs over its messages.
//
// A [Service] is a client of mortise over a [Remote] store. A [Host] has the store, package memory's, and a [Ledger],
// the data that the lock protects. A [Link] is the calling end of a connection, a [Guest] the answering one.
package playground
