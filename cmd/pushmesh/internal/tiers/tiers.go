// Package tiers has the commands that run one node of a tier, so that one binary is all of them.
package tiers

import (
	"context"
	"fmt"

	"github.com/alecthomas/kong"

	"github.com/pushmesh/pushmesh/internal/settings"
	"github.com/pushmesh/pushmesh/services/compute"
	computecmd "github.com/pushmesh/pushmesh/services/compute/command"
	"github.com/pushmesh/pushmesh/services/edge"
	edgecmd "github.com/pushmesh/pushmesh/services/edge/command"
	"github.com/pushmesh/pushmesh/services/router"
	routercmd "github.com/pushmesh/pushmesh/services/router/command"
	"github.com/pushmesh/pushmesh/services/store"
	storecmd "github.com/pushmesh/pushmesh/services/store/command"
)

// Names of all tiers.
const Names = "edge,router,store,compute"

// Explain reads the settings of a tier as its command does, and says where each is from.
func Explain(tier string, args []string) ([]settings.Line, error) {
	explain := map[string]func([]string) ([]settings.Line, error){
		"compute": computecmd.Explain, "edge": edgecmd.Explain, "router": routercmd.Explain, "store": storecmd.Explain,
	}[tier]
	if explain == nil {
		return nil, fmt.Errorf("there is no tier %q: it must be one of %s", tier, Names)
	}
	return explain(args)
}

// does is what a node of each tier is for.
var does = map[string]string{"compute": computecmd.Does, "edge": edgecmd.Does, "router": routercmd.Does, "store": storecmd.Does}

// Does is what a node of a tier is for, in a sentence.
func Does(tier string) string { return does[tier] }

// Model is the flags of a tier's command; nil: there is no such tier.
func Model(tier string) (*kong.Application, error) {
	into := map[string]settings.Checker{"compute": &compute.Settings{}, "edge": &edge.Settings{}, "router": &router.Settings{}, "store": &store.Settings{}}[tier]
	if into == nil {
		return nil, nil
	}
	return settings.Model(into, tier, does[tier])
}

// Command reports whether args begin a command about a tier, not one that runs a node of it.
func Command(args []string) bool {
	return len(args) > 1 && args[0] == "store" && args[1] == "accept-server"
}

// Main runs a node until it is told to stop, and returns the exit code of the process.
type Main func(ctx context.Context, args []string) int

// Named is the command of a tier, or nil where there is no tier of this name.
func Named(tier string) Main {
	switch tier {
	case "compute":
		return computecmd.Main
	case "edge":
		return edgecmd.Main
	case "router":
		return routercmd.Main
	case "store":
		return storecmd.Main
	}
	return nil
}
