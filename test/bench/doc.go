// Package bench runs the same workloads through mortise and through others, side by side on
// one server of this machine, and tells what each costs.
//
//	# All, a quarter of an hour; writes docs/reference/performance.md and its plots.
//	make bench
//	# A quick look, some five minutes.
//	go test -run '^$' -bench Table -benchtime 1x -rounds 1 -leasefor 5s .
//	# One workload, one contender.
//	go test -run '^$' -bench Table -benchtime 1x -workload contended -contender mortise .
//	# Five rounds of each.
//	go test -run '^$' -bench Table -benchtime 1x -every -timeout 3h .
//	# Two revisions in turns, ours only.
//	make bench-compare BASE=v1.2.3 COMPARE='-workload uncontended -rounds 9'
//	# Profiles of the heap, for go tool pprof.
//	go test -run '^$' -bench Table -benchtime 1x -workload leases -heap /tmp/h .
//
// Redisson and etcd take part where ./peers has fetched them, as make bench has it do. Without
// them, the table says that they are left out.
//
// # How it measures
//
// The workers are processes of their own (the test binary, executed again, and virtual machines with
// java/Worker.java), with clients of their own. Contenders take turns, round by round, so that a
// slow minute of the machine meets all of them; the table shows the median of the rounds. Compare within
// a table: a ratio holds, a figure is this machine's. Workloads on whose times no bar rests have
// one round unless -every is given.
//
// The window begins when everybody was served once, or after half a second and a fifth of the window: where the
// queue is not fair, a waiter may wait for ever. Of several waiters each would have ten turns in the window, if
// the queue were perfect, so that Jain's index tells which is served how often and not which came when. A wait
// counts if it ends in the window. Those that have not ended when it is over count nowhere, which is kind to
// queues that starve a waiter: Jain's index shows that.
//
// Exclusion is checked outside of Redis in each run: a worker that gets in writes itself into a word
// of a file that all processes have mapped, and finds the word empty. A run in which it was not has failed. So
// has one without any operation for 15 s.
//
// Commands are counted in a run of its own with MONITOR attached: those that clients send in the
// window, not those that scripts run. etcd's are the messages that it received, by its own metrics. Renewals are
// counted by the server: scripts do not run scripts, and MONITOR would make them several times slower.
//
// The slow link is a relay before the server. Leases are held by a process for each client library,
// all at the same time, on a server each: what is measured there is counts and bytes, not time.
//
// # Contenders
//
// Floors are what a program could do at best by hand with the same client and no waiting:
// bare is SET NX PX and a script that compares and deletes; hash is the two smallest scripts that
// keep Redisson's record, and publish as it does. Those that track have a client with the options that mortise
// gives its own, and run these same commands. Peers are used as their own documentation shows.
package bench
