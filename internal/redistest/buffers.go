package redistest

// What tests give rueidis and valkey-go for each connection: tests make thousands of them, and by default each takes a
// ring of 1,024 commands and 1 MB of buffers.
const (
	RingScale  = 8 // 2^8 commands
	BufferSize = 16 << 10
)
