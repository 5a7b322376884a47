// Package fuzz has the fuzz targets that need a real Redis and both clients, and the limits: what a
// million names, 10,000 holds and 10,000 readers leave behind.
//
//	make fuzz                                          # every target of every module, one after the other
//	go test -run '^$' -fuzz FuzzValues -fuzztime 5m    # one
//	go test -run FuzzValues/63912ea1189da588           # one input of testdata/fuzz again
//	make limits                                        # a million names
//
// # What must hold
//
// FuzzCalls: names of any bytes, client ids and durations. FuzzValues: values at our keys that
// no client of ours wrote. FuzzMessages: messages on our channels. After each input, on each store:
//
//   - Nothing panicked: background goroutines included, since that ends the process.
//   - No call outlived its own time, and none asked the server again and again.
//   - Every error is one of those that package mortise names.
//   - Every key that is not of the name's own (see own in world_test.go) is what it was: decoys stand around
//     it, and are compared by DUMP. No other key came to be.
//   - What was unlocked is gone, and what stays beside it expires; but counts, and fencing tokens that
//     were asked for.
//
// Each process of a fuzzing run has a redis-server of its own, which is emptied for each input.
package fuzz
