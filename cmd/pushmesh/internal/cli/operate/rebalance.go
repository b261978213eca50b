package operate

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

type Rebalance struct {
	Edge   string        `arg:"" help:"Id of the edge; pushmesh top shows them."`
	Share  float64       `required:"" placeholder:"0.2" help:"Share of the edge's connections, above 0 and at most 1."`
	Within time.Duration `default:"30s" help:"Time over which the connections are sent away, at most an hour."`
	cmdline.RouterFlag
}

func (Rebalance) Help() string {
	return `Connections are chosen at random. Their clients reconnect to the --public-address of another edge or, if none is known, to another of
their own addresses. Prints the number of connections, and does not wait for them. A second call replaces what an earlier one has not done yet.

  pushmesh rebalance edge-1 --share 0.2 --within 30s`
}

// Run asks for it.
func (c *Rebalance) Run(ctx context.Context, stdio cmdline.IO) error {
	switch {
	case !(c.Share > 0 && c.Share <= 1):
		return cmdline.Usage("--share is %v, it must be above 0 and at most 1", c.Share)
	case c.Within <= 0 || c.Within > time.Hour:
		return cmdline.Usage("--within is %v, it must be above 0 and at most 1h", c.Within)
	}
	return cmdline.Call(ctx, c.RouterFlag, cmdline.CallTimeout, pushmeshv1.NewMeshServiceClient, func(ctx context.Context, api pushmeshv1.MeshServiceClient) error {
		answer, err := api.Rebalance(ctx, &pushmeshv1.RebalanceRequest{
			Edge: c.Edge, Share: c.Share, Within: durationpb.New(c.Within),
		})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdio.Out, "%d connections are sent to other edges\n", answer.GetConnections())
		return err
	})
}
