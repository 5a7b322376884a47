package scripts

//go:generate go run ../gen/cmd/mortise-gen bounds -page ../SECURITY.md

// Bound is the most that a script does, whatever other programs have written into its keys: as many commands, and as
// many bytes of their arguments and replies and of the script's own reply. A script that takes any number of keys does
// as much for each item. No name or value has more than a megabyte, and no key has more than one that is so long.
type Bound struct{ Calls, Bytes int }
