// Command store runs one node of the store tier; `store health URL` says how one is.
package main

import (
	"context"
	"os"

	"github.com/pushmesh/pushmesh/services/store/command"
)

func main() {
	os.Exit(command.Main(context.Background(), os.Args[1:]))
}
