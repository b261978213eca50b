package cli

import (
	"context"
	"errors"
	"io"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

type historyCmd struct {
	Topic string `arg:"" help:"Topic to read."`
	From  uint64 `placeholder:"SEQ" help:"First seq to print; by default the oldest that is retained."`
	Limit uint64 `placeholder:"N" help:"Print at most N messages; by default all up to the head."`
	Epoch uint64 `placeholder:"EPOCH" help:"Fail with EPOCH_CHANGED if the log has another epoch now."`
	routerFlag
	formatFlag
}

func (historyCmd) Help() string {
	return `Prints a line for each message: TOPIC, SEQ and PAYLOAD, separated by tabs.

  pushmesh history room/7/chat
  pushmesh history room/7/chat --from 100 --limit 10 --format json`
}

// Run prints the messages.
func (c *historyCmd) Run(ctx context.Context, stdio stdio) error {
	conn, err := c.dial()
	if err != nil {
		return err
	}
	none, err := c.read(ctx, pushmeshv1.NewHistoryServiceClient(conn), stdio.out)
	if err == nil && none {
		noteUnkept(stdio.err, namespaceOf(ctx, conn, c.Topic), c.Topic)
	}
	return errors.Join(err, conn.Close())
}

// read prints; none reports whether there was nothing.
func (c *historyCmd) read(ctx context.Context, history pushmeshv1.HistoryServiceClient, out io.Writer) (none bool, err error) {
	stream, err := history.Read(ctx, &pushmeshv1.ReadRequest{Topic: c.Topic, Epoch: c.Epoch, FromSeq: c.From, Limit: c.Limit})
	if err != nil {
		return false, err
	}
	for none = true; ; {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return none, nil
		}
		if err != nil {
			return none, err
		}
		for _, m := range part.GetMessages() {
			none = false
			if err := c.print(out, shownStored(m)); err != nil {
				return none, err
			}
		}
	}
}

func shownStored(m *pushmeshv1.StoredMessage) *shownMessage {
	s := &shownMessage{
		Topic: m.GetTopic(), Epoch: m.GetEpoch(), Seq: m.GetSeq(), ID: showID(m.GetId()), PublishedAt: showTime(m.GetPublishedAt()),
		Headers: m.GetHeaders(), Priority: m.GetPriority(), From: m.GetFrom(),
	}
	s.setPayload(m.GetPayload())
	return s
}
