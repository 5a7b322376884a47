// Package browser holds the playground, docs/playground, to what it says: a real Chromium opens the page, presses its
// buttons and awaits what it shows.
//
//	go test -pictures pictures .   # writes pictures of each step, in light, dark and at a phone's width
package browser
