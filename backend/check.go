package backend

import "context"

// CheckStore looks at what the operations of a store need, and tells what is wrong. CheckStore is a
// capability: [Capabilities.Check].
type CheckStore interface {
	// Check looks at the store once. Names of the client begin with prefix; it may be empty. Check
	// changes nothing, and sends nothing that the store would log as forbidden: what it may not see
	// is a finding of the state [FindingUnknown]. An error says that the store did not answer.
	Check(ctx context.Context, prefix string) ([]Finding, error)
}

// The states of a [Finding].
const (
	FindingOK      = "ok"
	FindingWarning = "warning" // locks work, and may be lost, late or logged as forbidden
	FindingProblem = "problem" // some call certainly fails
	FindingUnknown = "unknown" // the session may not see it
)

// Finding is what a check found about one subject.
type Finding struct {
	// Name is the subject, one word: "server", "role", "permissions", "channels", "eviction", "clock".
	// Several findings may have one name: one for each node, or for each kind of lock.
	Name string
	// State is FindingOK, FindingWarning, FindingProblem or FindingUnknown.
	State string
	// Text says what was found.
	Text string
	// Remedy says what an operator can do; empty in the state FindingOK.
	Remedy string
}
