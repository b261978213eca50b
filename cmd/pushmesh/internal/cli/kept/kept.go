// Package kept has the commands on the last messages that topics keep.
package kept

import (
	"context"
	"fmt"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Command is the command pushmesh kept.
type Command struct {
	List   keptList   `cmd:"" help:"Show the topics that keep their last message, in the order of their names."`
	Delete keptDelete `cmd:"" help:"Delete the message that a topic keeps."`
}

// Help of the command.
func (Command) Help() string {
	return `In a namespace with --keep last each topic keeps its newest message beyond the retention, until it is deleted. A subscription gets it first.

  pushmesh namespace put state --durable --keep last
  pushmesh pub state/lamp on
  pushmesh kept list 'state/#'
  pushmesh kept delete state/lamp`
}

type keptList struct {
	Filter string `arg:"" optional:"" help:"Topic, or filter of topics; all by default."`
	Limit  int    `placeholder:"N" help:"Show at most N; all by default."`
	cmdline.RouterFlag
	cmdline.FormatFlag
}

func (keptList) Help() string {
	return `  pushmesh kept list
  pushmesh kept list 'state/+/lamp' --limit 20
  pushmesh kept list --format json | jq .topic`
}

// shown is a topic as JSON prints it.
type shown struct {
	Topic string `json:"topic"`
	Epoch uint64 `json:"epoch"`
	Seq   uint64 `json:"seq"`
}

// pageOfKept is how many are asked for at a time.
const pageOfKept = 1000

// Run prints the topics.
func (c *keptList) Run(ctx context.Context, stdio cmdline.IO) error {
	return withKept(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.KeptServiceClient) error {
		t := c.Table(stdio.Out, "TOPIC", "SEQ")
		err := cmdline.Pages(c.Limit, pageOfKept, func(n uint32, token string) (int, string, error) {
			answer, err := api.List(ctx, &pushmeshv1.KeptServiceListRequest{Filter: c.Filter, Limit: n, PageToken: token})
			for _, k := range answer.GetKept() {
				if err := t.Row(shown{k.GetTopic(), k.GetEpoch(), k.GetSeq()}, k.GetTopic(), k.GetSeq()); err != nil {
					return 0, "", err
				}
			}
			return len(answer.GetKept()), answer.GetNextPageToken(), err
		})
		if err != nil {
			return err
		}
		return t.Flush()
	})
}

type keptDelete struct {
	Topic string `arg:"" help:"Topic."`
	cmdline.RouterFlag
}

func (keptDelete) Help() string {
	return `Publishes a message without a payload, which every subscriber gets. After it the topic keeps nothing.

  pushmesh kept delete state/lamp`
}

// Run deletes, and says by which message.
func (c *keptDelete) Run(ctx context.Context, stdio cmdline.IO) error {
	return withKept(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.KeptServiceClient) error {
		answer, err := api.Delete(ctx, &pushmeshv1.KeptServiceDeleteRequest{Topic: c.Topic})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdio.Out, "deleted by seq %d\n", answer.GetSeq())
		return err
	})
}

func withKept(ctx context.Context, f cmdline.RouterFlag, call func(context.Context, pushmeshv1.KeptServiceClient) error) error {
	return cmdline.Call(ctx, f, cmdline.CallTimeout, pushmeshv1.NewKeptServiceClient, call)
}
