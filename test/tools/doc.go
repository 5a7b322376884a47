// Package tools pins the linters in a module of its own, so that those who use
// mortise never download them. `make lint` and `make vuln` run them.
package tools
