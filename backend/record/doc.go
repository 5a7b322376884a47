// Package record has the rules of a lock as a state machine, without a clock, I/O or a goroutine. The
// state is that of one name: who holds the lock, and who waits for it. A step takes the state and a
// request, changes the state, and returns the reply and the notices to sessions. Whatever a step needs
// besides the state, such as the time, comes in with it: see [Step].
//
// [Lock] is the state of plain, fenced, fair and delegated locks. A store keeps the state wherever it
// likes; package memory keeps it in a map. The Lua scripts follow the same rules on Redisson's records.
package record
