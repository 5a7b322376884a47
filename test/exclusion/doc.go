// Package exclusion asks the one question about a lock: were two ever in at once?
// It runs real processes (the test binary, executed again as workers), kills and stops
// them, pauses Redis under them, and counts outside of Redis. It runs on Linux.
//
//	go test -race ./...                                    # all of it, some 90 s
//	go test -race -run TestExclusion -exclusion.time=10m   # longer
//	go test -race -run TestSelftest -v                     # broken locks, each caught
//
// # What counts as a violation
//
// Workers write into a file that all of them map into memory (see ledger). A worker that is
// inside asks its lease again and again:
//
//	at := now()            // CLOCK_MONOTONIC, one clock for all processes of a machine
//	if lease.Err() == nil {
//		hold.last = at // I held the lock at that time: the lease says so
//	}
//
// The time is read BEFORE the lease is asked, and a lease that has ended stays so.
// Hence nil proves that the lock was held at that time, and from the first such
// time to the last one, without a gap, wherever the process was stopped meanwhile, between
// the two lines for one. This is all a holder claims: the interval from first to last.
//
// Rule 2 of the contract says that a lease ends before another can acquire. So no two
// claims on a name may overlap: that is a violation, and nothing else is. Neither is
// a holder that was told too late to stop its work (no lock service can do that, see
// docs/explanation/guarantees.md), nor one that was killed: its claim ends with its last line.
//
// So it is with each kind: readers do not mind each other, nor the writer that they were
// entered under; of permits one more may not be claimed than there are. A permit of a
// counting semaphore has no lease: it is claimed from when Acquire returned until Release is called.
//
// # What counts as a stuck lock
//
// While a worker waits, the next claim must begin within a second or two of the time at
// which the lock was free: when Unlock returned, or, where the holder was killed or
// its release failed, when its lease was over. Where there are permits, that is when
// one was to be had. Faults that the test itself causes are
// allowed for.
package exclusion
