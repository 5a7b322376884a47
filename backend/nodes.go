package backend

// NodeStore is a store that may consist of several nodes, each with a share of the names.
// A client then keeps what it sends to one apart from what it sends to others, so that a node that
// hangs holds up nothing elsewhere.
type NodeStore interface {
	// Node numbers the node that has a name, from one, as far as the session knows; 0 where there is one only, or it
	// does not know yet. Numbers are small, and stay those of their nodes. It neither blocks nor does I/O, nor
	// calls the Handler. That it is wrong costs promptness only.
	Node(name string) int
}
