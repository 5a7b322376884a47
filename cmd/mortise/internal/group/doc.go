// Package group runs a command as a process group that never outlives a deadline: the end of a lease.
//
// Three processes take part. The parent (mortise) holds the lock. The guardian, in a session of its own, gets each
// deadline over a pipe, and kills the group at the deadline or at the pipe's end: so a parent that is killed or stopped
// leaves nothing at work. The starter becomes the command, and only when the guardian knows its group: a parent that
// dies in between leaves a starter that ends.
//
// What leaves the group (setsid, a daemon that detaches, a container's runtime) is out of reach.
package group
