// Command router runs one node of the router tier; `router health URL` says how one is.
package main

import (
	"context"
	"os"

	"github.com/pushmesh/pushmesh/services/router/command"
)

func main() {
	os.Exit(command.Main(context.Background(), os.Args[1:]))
}
