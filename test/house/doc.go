// Package house has no code of its own: its test measures the code of this repository against the
// limits of size, complexity and layering. make lint runs it.
package house
