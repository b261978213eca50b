package operate

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Store is the command pushmesh store, but for what runs a node.
type Store struct {
	AcceptServer acceptServer `cmd:"" help:"Have stores go on with a database that was restored or promoted."`
}

// Help of the command.
func (Store) Help() string {
	return `Everything else after "pushmesh store" runs a node of the tier: pushmesh store --help.`
}

type acceptServer struct {
	SameEpoch bool   `xor:"epoch" required:"" help:"The logs go on: nothing that was acknowledged is missing on the server, such as after the promotion of a synchronous standby."`
	NewEpoch  bool   `xor:"epoch" required:"" help:"The logs of all topics in the database begin anew: messages that were acknowledged may be missing, such as after a restore, or the promotion of a standby that was not synchronous."`
	Database  string `placeholder:"NAME" help:"Which database, where the mesh has several: home, or the name of a --shard-db."`
	cmdline.FormatFlag
	cmdline.RouterFlag
}

// acceptTimeout bounds the call: a new epoch takes hold of every topic.
const acceptTimeout = 150 * time.Second

// Help of the command.
func (acceptServer) Help() string {
	return `A store that finds another server than the one it wrote on last appends nothing until it is told whether messages may be missing there
(pushmesh doctor says so). Stores run meanwhile, and go on within seconds.

  pushmesh store accept-server --same-epoch
  pushmesh store accept-server --new-epoch --database b`
}

// Run asks for it.
func (c *acceptServer) Run(ctx context.Context, stdio cmdline.IO) error {
	req := &pushmeshv1.AcceptServerRequest{Epoch: pushmeshv1.AcceptServerRequest_EPOCH_SAME, Database: c.Database}
	if c.NewEpoch {
		req.Epoch = pushmeshv1.AcceptServerRequest_EPOCH_NEW
	}
	return cmdline.Call(ctx, c.RouterFlag, acceptTimeout, pushmeshv1.NewMeshServiceClient, func(ctx context.Context, api pushmeshv1.MeshServiceClient) error {
		done, err := api.AcceptServer(ctx, req)
		if err != nil {
			return err
		}
		if c.Format == "json" {
			line, err := protojson.Marshal(done)
			if err == nil {
				_, err = fmt.Fprintf(stdio.Out, "%s\n", line)
			}
			return err
		}
		_, err = fmt.Fprintf(stdio.Out, "database %s: accepted by store %s\n  was  %s\n  is   %s\n  %s\n",
			done.GetDatabase(), done.GetStoreId(), named(done.GetBefore()), named(done.GetAfter()), became(done))
		return err
	})
}

func named(s *pushmeshv1.DatabaseServer) string {
	return fmt.Sprintf("system %d, timeline %d", s.GetSystem(), s.GetTimeline())
}

// became is what became of the logs.
func became(done *pushmeshv1.AcceptServerResponse) string {
	if done.GetEpoch() == 0 {
		return "the logs go on under the same epoch"
	}
	return fmt.Sprintf("the logs of %d shards begin anew under epoch %d (%s)", done.GetShards(), done.GetEpoch(), cmdline.ShowTime(done.GetEpoch()))
}
