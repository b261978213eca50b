// Package tiers has the commands that run one node of a tier, so that one binary is all of them.
package tiers

import (
	"context"

	compute "github.com/pushmesh/pushmesh/services/compute/command"
	edge "github.com/pushmesh/pushmesh/services/edge/command"
	router "github.com/pushmesh/pushmesh/services/router/command"
	store "github.com/pushmesh/pushmesh/services/store/command"
)

// Main runs a node until it is told to stop, and returns the exit code of the process.
type Main func(ctx context.Context, args []string) int

// Named is the command of a tier, or nil where there is no tier of this name.
func Named(tier string) Main {
	switch tier {
	case "compute":
		return compute.Main
	case "edge":
		return edge.Main
	case "router":
		return router.Main
	case "store":
		return store.Main
	}
	return nil
}
