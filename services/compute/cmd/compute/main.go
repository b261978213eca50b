// Command compute runs one node of the compute tier; `compute health URL` says how one is.
package main

import (
	"context"
	"os"

	"github.com/pushmesh/pushmesh/services/compute/command"
)

func main() {
	os.Exit(command.Main(context.Background(), os.Args[1:]))
}
