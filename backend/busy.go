package backend

// BusyStore may be implemented by a Store whose requests may wait in this process before they are sent.
type BusyStore interface {
	// Busy returns an error that says why requests about a name wait now: for example, all connections of
	// the client library's pool are in use. It returns nil if no such reason is known. Busy does no I/O
	// and takes no mutex of the engine; the engine asks after a request that has no answer.
	Busy(name string) error
}
