// Package property holds tests that draw random operations and run them on every
// store at once: on the in-memory one, which is the model, and on a real Redis through
// go-redis and through rueidis, with its cache and without. Whatever one of them answers,
// all must answer. What they all answer is also compared with what the contract says: a
// model of it in plain Go, with no store and no time, is in contract_test.go for the port,
// and in kinds_client_test.go for the locks of a client.
//
// Leases that are drawn are so long that none ends during a test, or are waited out in every
// store before the next operation: no verdict depends on how fast the machine is.
//
//	go test ./...                                                  # always the same sequences
//	go test ./... -rapid.seed=0 -rapid.checks=2000 -timeout=2h     # others, and longer
//	go test ./... -rapid.seed=<seed>                               # those of a seed that was printed
//
// -run takes a kind: -run EveryKind/semaphore, -run EveryLock/rw.
package property
