package postgres

// NewDriver makes the driver of a session.
var NewDriver = newDriver

// Statements are all statements with the number of their arguments.
var Statements = map[string]string{
	"swap": swapSQL, "lock_row": lockRowSQL, "notify": notifySQL, "guard": guardSQL, "list": listSQL, "sweep": sweepSQL,
}
