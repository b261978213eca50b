// Command edge runs one node of the edge tier; `edge health URL` says how one is.
package main

import (
	"context"
	"os"

	"github.com/pushmesh/pushmesh/services/edge/command"
)

func main() {
	os.Exit(command.Main(context.Background(), os.Args[1:]))
}
