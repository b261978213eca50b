// Command release makes parts of a release (scripts/release):
//
//	release goproxy REPOSITORY VERSION OUT UNIX_TIME
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/pushmesh/pushmesh/tools/release/goproxy"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 5 || args[0] != "goproxy" {
		return fmt.Errorf("usage: release goproxy REPOSITORY VERSION OUT UNIX_TIME")
	}
	at, err := strconv.ParseInt(args[4], 10, 64)
	if err != nil {
		return fmt.Errorf("the time %q is no number of seconds", args[4])
	}
	return goproxy.Write(args[1], args[2], args[3], time.Unix(at, 0))
}
