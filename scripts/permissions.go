package scripts

//go:generate go run ../gen/cmd/mortise-gen permissions -features features.txt -page ../docs/reference/deployments.md

// Needs is what a Redis user must be permitted. Commands are as in ACL rules, "hset" or "pubsub|numsub". Patterns of
// keys and channels have NAME in the place of a lock's name, and end there: "redisson_lock_token:{NAME". A lock whose
// name has braces of its own is not put into braces: for such names a pattern has NAME in the place of {NAME.
//
// Of publish and spublish, and of pubsub|numsub and pubsub|shardnumsub, a script sends one: the latter of each where
// pub/sub is sharded, on clusters.
type Needs struct {
	Must     []string // commands without which a script fails
	May      []string // commands that a script can do without; if denied, they are in ACL LOG, and waits are longer
	Keys     []string // patterns of keys
	MayKeys  []string // patterns of keys that only commands in May access
	Channels []string // patterns of channels
}

// Feature is a part of mortise that a Redis user may be permitted to use. docs/reference/deployments.md has its row.
type Feature struct {
	Name    string   // a word, such as "locks"
	Title   string   // in the page's row
	Besides string   // the name of a feature that the user must be permitted, too; Needs has only the rest
	Scripts []string // the scripts that it sends
	Needs
}
