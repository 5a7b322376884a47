package once

// EveryBy is Every with ticks of a function instead of a client's.
var EveryBy = every
