package backend

// PartitionStore is a store that may have several parts, such as the nodes of a cluster, each with a
// share of the names. The engine then separates its requests by part, so that a part that does not
// answer delays no request to another. PartitionStore is a capability: [Capabilities.Partitions].
type PartitionStore interface {
	// Partition returns the number of the part that has a name, from one; 0 if there is a single
	// part, or if the session does not know the part yet. Numbers are small, and a part keeps its
	// number. Partition does not block, do I/O, or call the Handler. A wrong number only makes
	// requests wait for another part.
	Partition(name string) int
}
