//go:build linux || darwin

package sqlite

// NewDriver makes the driver of a session.
var NewDriver = newDriver

// Statements are all statements of requests.
var Statements = []string{nextSQL, getSQL, putSQL, deleteSQL, listSQL}
