// Command report reads the output of `go test -json` and prints what a reader wants of it: a line a
// package with its number of tests, everything a failed test said, and the sum. It fails on a
// failed test and on a skipped one. With -v it names every test that passed, too.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	verbose := flag.Bool("v", false, "name every test that passed")
	flag.Parse()
	sum, err := report(os.Stdin, os.Stdout, *verbose)
	if err == nil {
		err = sum.verdict()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}
