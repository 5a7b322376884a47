package backend

// PartitionStore is a store of possibly several parts, each with a share of the names. A client
// then separates its traffic by part, so that a part without answers delays nothing elsewhere.
type PartitionStore interface {
	// Partition returns the number of the part with a name, from one, by the session's knowledge; 0
	// if there is a single part, or if the part is not known yet. Numbers are small, and a part
	// keeps its number. Partition neither blocks, does I/O, nor calls the Handler. A wrong number
	// costs promptness only.
	Partition(name string) int
}
