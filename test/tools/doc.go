// Package tools pins the linters in a module of its own, so that those who use
// mortise never download them. `make lint` and `make vuln` run them. Its tests check what no linter does, and that the
// linter fails where it should; `make lint` runs them.
package tools
