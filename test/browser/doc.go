// Package browser holds the playground, docs/playground, to what it says: a real Chromium opens the page, presses its
// buttons and awaits what it shows. It also looks at the site that make docs builds: what its search finds first,
// whether its pages fit, and the story on its first page. The console is opened, too, on a Redis.
//
//	go test -pictures pictures .   # writes pictures of each step, in light, dark and at a phone's width
package browser
