// Command pushmesh is the command-line tool of a mesh, and a whole mesh in one process.
package main

import (
	"context"
	"os"

	_ "golang.org/x/crypto/x509roots/fallback" // an image from scratch has no roots of its own

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cli"
)

func main() {
	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
