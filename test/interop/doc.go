// Package interop holds tests that share locks with Redisson: the real one, in a Java program (java/) that the
// tests start once for each of its versions and drive over its standard input. Whatever Java and Go must agree
// on is tested on all of them, with go-redis and with rueidis, on a standalone server and on a cluster of three
// masters, with and without sharded pub/sub: each site runs all tests of the table in locks_test.go. TestServers
// has three servers that know nothing of each other.
//
// Most of the time is waiting, so sixteen tests run side by side unless -parallel says otherwise.
// Waits are bounded generously, and a waiter that is woken is told from one that looked again by leases that
// no test outlives.
//
//	go test ./...                                        # all; builds what it needs first
//	go test -run 'TestStandalone/redisson-4.7.0/rueidis' # a part
//	go test -run 'TestCluster/.*/go-redis/Wakes'
//	INTEROP_SEED=7 go test -run '/.*/.*/Random'          # with this seed; else a new one, which is logged
//
// The build script installs a JDK and Maven where they are missing, and redis-server
// is to be there as for all other tests.
package interop
