// Package chaos does to Redis, to the network and to processes what happens to them on their
// worst days, while processes fight for locks, and judges the history outside of Redis. It runs on Linux.
//
//	make chaos                                  # every fault once in every deployment, a minute and a half
//	make chaos CHAOS='-chaos.seed=7'            # the same faults in the same order again
//	make chaos CHAOS='-chaos.time=2h'           # for as long as that
//	make chaos CHAOS='-chaos.only=FLUSHALL'     # one kind
//	make chaos-long                             # a thousand faults, a million operations
//	make chaos-selftest                         # locks that are broken, each caught
//
// # The run
//
// There are three deployments: a Redis with an AOF; a master, a replica and three sentinels; a
// cluster of three masters. On each, four processes (the test binary, executed again) with six goroutines take locks,
// two by go-redis and two by rueidis, and are killed, stopped and replaced. Of five names two are plain locks, one is a
// fair lock, one a read-write lock, one has two permits. Five names are wanted by all, others by few; names change
// every four seconds, so that a history is short enough to be checked as a whole. Half of the goroutines ask for
// fencing tokens, where there are any, two in three for a read-write lock as readers; some have leases that are not
// renewed, some are overstayed, most waits end before they got anything. Clients connect through a relay, half of
// the processes through another one than the other half.
//
// Faults come one after the other, one in four while messages are late, from the list in faults_test.go, which
// also says what docs/explanation/guarantees.md promises while each lasts.
// After each, and at the end of all, locking must go on.
//
// # The ledger
//
// All processes have mapped one file. Every visit to a lock is an entry in it, with the times of
// CLOCK_MONOTONIC, one clock for all processes of a machine: Lock called, returned; the first and the last time
// at which the lease said that it was held; Unlock called, returned; by which process, with which token, and how
// it ended. A worker that is inside asks again and again:
//
//	at := now()
//	if lease.Err() == nil {
//		last = at // I held the lock at that time: the lease says so
//	}
//
// The time is read BEFORE the lease is asked, and a lease that has ended stays so: nil proves that the lock was
// held at that time, wherever the process was stopped meanwhile. So a visit claims the time from first to last.
//
// # The verdict
//
// These are violations, and the run fails:
//
//   - Two claims on a name overlap; those of readers may, and as many as there are permits.
//   - A name's tokens do not rise.
//   - The fenced store, a word for each name in the same file, refused a holder which, asked
//     afterwards, still held the lock.
//   - porcupine finds no order of events in which the history is a lock's (verdict_test.go): a visit
//     takes it, or its share of it, when there is room, with a larger token; and has it no more, by
//     Unlock, by time, or because the store forgot it.
//   - A holder is not told within a lease that the store was emptied.
//   - A lock that was waited for was free for longer than a lease and a second, after the
//     faults, of time in which the machine ran: each process notes when it did not run though it wanted to. Where
//     a partition was the fault, for longer than a second; for a fair lock with a place of a killed
//     process in its queue, for longer than two.
//   - A process left goroutines behind, or a store has a lock when all have ended, or fewer or more
//     permits than were made.
//
// Where the store forgets what it confirmed (FLUSHALL, DEL, eviction, an empty restart) nothing is promised of
// the holder of a lock at that time, but that tokens rise and that holders are told; the test makes permits anew
// then, as an operator would. Where a replica takes over, tokens may have been forgotten too; what was begun
// before the old master was gone is left out, and what comes after it is judged by itself. Leaving visits out
// cannot make a history wrong that was right, so this excuses, but never accuses.
//
// None of it is a bound on how long things take, except the last but one, which is in
// undisturbed time: the verdict does not depend on how busy the machine is.
package chaos
