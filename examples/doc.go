// Package examples holds programs to run, each in a folder of its own, and the tests
// that keep the README true: its code, and what it says that things cost. Other tests
// here see mortise from a user's package, as the warning of a long hold does.
package examples
