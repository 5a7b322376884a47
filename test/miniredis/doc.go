// Package miniredis runs the suite of backend/backendtest on miniredis, a Redis written in Go for tests.
package miniredis
