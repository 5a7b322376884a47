package backend

// PartitionStore is a store that may consist of several parts, each with a share of the names.
// A client then keeps what it sends to one apart from what it sends to others, so that a part that
// hangs holds up nothing elsewhere.
type PartitionStore interface {
	// Partition numbers the part that has a name, from one, as far as the session knows; 0 where there is one only,
	// or it does not know yet. Numbers are small, and stay those of their parts. It neither blocks nor does I/O, nor
	// calls the Handler. That it is wrong costs promptness only.
	Partition(name string) int
}
