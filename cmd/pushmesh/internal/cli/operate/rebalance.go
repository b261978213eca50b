package operate

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Rebalance is the command pushmesh rebalance.
type Rebalance struct {
	Edge   string        `arg:"" optional:"" help:"Id of the edge; pushmesh top shows them."`
	Share  float64       `placeholder:"0.2" help:"Share of the edge's connections, above 0 and at most 1."`
	Even   bool          `help:"In place of EDGE and --share: every edge that has many more connections than edges have on average gives up what it has more."`
	Above  float64       `default:"0.2" placeholder:"0.2" help:"With --even: how much more than the average is too much, as a share of the average (${default})."`
	Within time.Duration `default:"30s" help:"Time over which the connections are sent away, at most an hour."`
	cmdline.RouterFlag
}

// Help of the command.
func (Rebalance) Help() string {
	return `Connections are chosen at random. Their clients reconnect to the --public-address of another edge or, if none is known, to another of
their own addresses. Prints the number of connections, and does not wait for them. A second call replaces what an earlier one has not done yet.

  pushmesh rebalance edge-1 --share 0.2 --within 30s
  pushmesh rebalance --even --within 2m`
}

// Run asks for it.
func (c *Rebalance) Run(ctx context.Context, stdio cmdline.IO) error {
	switch {
	case c.Even && (c.Edge != "" || c.Share != 0):
		return cmdline.Usage("--even is about all edges: it takes neither EDGE nor --share")
	case !c.Even && c.Edge == "":
		return cmdline.Usage("which edge? Give its id, or --even")
	case !c.Even && !(c.Share > 0 && c.Share <= 1):
		return cmdline.Usage("--share is %v, it must be above 0 and at most 1", c.Share)
	case !(c.Above >= 0.01 && c.Above <= 10):
		return cmdline.Usage("--above is %v, it must be from 0.01 to 10", c.Above)
	case c.Within <= 0 || c.Within > time.Hour:
		return cmdline.Usage("--within is %v, it must be above 0 and at most 1h", c.Within)
	}
	return cmdline.Call(ctx, c.RouterFlag, cmdline.CallTimeout, pushmeshv1.NewMeshServiceClient, func(ctx context.Context, api pushmeshv1.MeshServiceClient) error {
		if c.Even {
			return c.even(ctx, api, stdio)
		}
		n, err := c.ask(ctx, api, c.Edge, c.Share)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdio.Out, "%d connections are sent to other edges\n", n)
		return err
	})
}

func (c *Rebalance) ask(ctx context.Context, api pushmeshv1.MeshServiceClient, edge string, share float64) (uint64, error) {
	answer, err := api.Rebalance(ctx, &pushmeshv1.RebalanceRequest{Edge: edge, Share: share, Within: durationpb.New(c.Within)})
	return answer.GetConnections(), err
}

// even asks each edge that has too many.
func (c *Rebalance) even(ctx context.Context, api pushmeshv1.MeshServiceClient, stdio cmdline.IO) error {
	mesh, err := api.Nodes(ctx, &pushmeshv1.MeshServiceNodesRequest{})
	if err != nil {
		return err
	}
	giving := surplus(mesh.GetNodes(), c.Above)
	if len(giving) == 0 {
		_, err := fmt.Fprintf(stdio.Out, "no edge has %.0f %% more connections than the average\n", 100*c.Above)
		return err
	}
	for _, g := range giving {
		n, err := c.ask(ctx, api, g.edge, g.share)
		if err != nil {
			return fmt.Errorf("%s: %w", g.edge, err)
		}
		if _, err := fmt.Fprintf(stdio.Out, "%s: %d connections are sent to other edges\n", g.edge, n); err != nil {
			return err
		}
	}
	return nil
}

// giver is an edge and the share of its connections that it has more than the average.
type giver struct {
	edge  string
	share float64
}

// surplus finds the edges whose connections are above the average by more than a share of it.
// Edges that are not ready, stop, or are not heard neither give nor count: they can take nobody in.
func surplus(nodes []*pushmeshv1.Node, above float64) []giver {
	var edges []*pushmeshv1.Node
	sum := 0.0
	for _, n := range nodes {
		if n.GetTier() != pushmeshv1.Tier_TIER_EDGE || n.GetDraining() || n.GetProblem() != "" || n.GetReady() == pushmeshv1.Ready_READY_NO {
			continue
		}
		edges = append(edges, n)
		sum += float64(n.GetConnections())
	}
	mean := sum / float64(len(edges))
	var giving []giver
	for _, n := range edges {
		if has := float64(n.GetConnections()); has > mean*(1+above) {
			giving = append(giving, giver{n.GetId(), (has - mean) / has})
		}
	}
	return giving
}
