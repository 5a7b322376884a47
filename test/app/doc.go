// Package app tests the middleware as applications use it: with routers that mortise
// does not need itself, and in several processes.
package app
