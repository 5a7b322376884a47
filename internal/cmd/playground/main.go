//go:build !js

// Playground serves the page docs/playground on this machine: run `make playground`, which builds it first.
//
// Built for a browser (GOOS=js GOARCH=wasm), the same package is the program of each Web Worker in the page: a
// service, or the store.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8017", "`address` to serve on")
	dir := flag.String("dir", "docs/playground", "`directory` of the page")
	flag.Parse()
	fmt.Printf("playground: http://%s/\n", *addr)
	fmt.Fprintln(os.Stderr, "playground:", http.ListenAndServe(*addr, http.FileServer(http.Dir(*dir))))
	os.Exit(1)
}
