// Command go is the Go SDK's program for the scenes of test/sdk.
package main

import (
	"fmt"
	"os"

	"github.com/pushmesh/pushmesh/test/sdk/godriver"
)

func main() {
	if err := godriver.Run(os.Stdin, os.Stdout, ""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
