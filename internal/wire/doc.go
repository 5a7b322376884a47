// Package wire has the numbers of the Redis scripts, for the code that must agree with the scripts: the adapters'
// shared part, the store in memory, and the engine. scripts/constants.lua declares the numbers.
package wire

//go:generate go run ../../gen/cmd/mortise-gen numbers ../../scripts
