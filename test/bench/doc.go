// Package bench runs the same workloads through mortise and through others, side by side on
// one server of this machine, and tells what each costs.
//
//	make bench                                                                      # the table, some ten minutes
//	go test -run '^$' -bench Table -benchtime 1x -rounds 1 -window 300ms .          # a quick look
//	go test -run '^$' -bench Table -benchtime 1x -workload contended -timeout 1h .  # some of the workloads
//
// # How it measures
//
// The workers are processes of their own (the test binary, executed again), with clients of their
// own. Contenders take turns, round by round, so that a slow minute of the machine meets all of
// them; the table shows the median of the rounds. Compare within a table: a ratio holds, a figure
// is this machine's.
//
// Exclusion is checked outside of Redis in each run: whoever gets in writes himself into a word
// of a file that all processes have mapped, and finds nobody there.
//
// Commands are counted in a run of its own with MONITOR attached: those that clients send, not
// those that scripts run.
//
// # Contenders
//
// Floors are what a program could do at best by hand with the same client and no waiting:
// bare is SET NX PX and a script that compares and deletes; hash is the two smallest scripts that
// keep Redisson's record, and publish as it does. Peers are used as their own documentation shows.
package bench
