// Package jobs asks of leaders and of schedules what package exclusion asks of locks: did two ever
// lead, was a tick ever started twice? It runs real processes (the test binary, executed again as
// workers), kills and stops them, cuts them off from Redis, sets their clocks, and counts outside
// of Redis, in a file that all of them map into memory. It runs on Linux.
//
//	go test ./...                                   # a minute
//	go test -v -run Ticks -jobs.ticks=1000 .        # two
//
// # Leaders
//
// A leader claims that it leads as a holder of package exclusion claims that it holds: it reads the
// clock, asks its term, and has led at that time if the term says so. No two claims may overlap.
// After the end of a leader the next one has the lease and a second.
//
// # Ticks
//
// A worker counts each start of a tick. The clocks of the workers differ by two seconds each: what
// the workers run is this package built with a time.Now that adds what an environment variable
// says, by the -overlay of the go command. So each line of the worker, of mortise, of the client
// library and of the runtime's own packages sees the shifted clock. (Go programs read the clock
// without libc, which libfaketime would have to stand in for, and time namespaces shift other
// clocks.)
package jobs
