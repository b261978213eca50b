// Package tiers has the commands that run one node of a tier, so that one binary is all of them.
package tiers

import (
	"context"
	"fmt"

	"github.com/pushmesh/pushmesh/internal/settings"
	compute "github.com/pushmesh/pushmesh/services/compute/command"
	edge "github.com/pushmesh/pushmesh/services/edge/command"
	router "github.com/pushmesh/pushmesh/services/router/command"
	store "github.com/pushmesh/pushmesh/services/store/command"
)

// Names of all tiers.
const Names = "edge,router,store,compute"

// Explain reads the settings of a tier as its command does, and says where each is from.
func Explain(tier string, args []string) ([]settings.Line, error) {
	explain := map[string]func([]string) ([]settings.Line, error){
		"compute": compute.Explain, "edge": edge.Explain, "router": router.Explain, "store": store.Explain,
	}[tier]
	if explain == nil {
		return nil, fmt.Errorf("there is no tier %q: it must be one of %s", tier, Names)
	}
	return explain(args)
}

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
