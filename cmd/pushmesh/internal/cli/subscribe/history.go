package subscribe

import (
	"context"
	"errors"
	"io"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

type History struct {
	Topic string `arg:"" help:"Topic to read."`
	From  uint64 `placeholder:"SEQ" help:"First seq to print; by default the oldest that is retained."`
	Limit uint64 `placeholder:"N" help:"Print at most N messages; by default all up to the head."`
	Epoch uint64 `placeholder:"EPOCH" help:"Fail with EPOCH_CHANGED if the log has another epoch now."`
	cmdline.RouterFlag
	cmdline.FormatFlag
}

func (History) Help() string {
	return `Prints a line for each message: TOPIC, SEQ and PAYLOAD, separated by tabs.

  pushmesh history room/7/chat
  pushmesh history room/7/chat --from 100 --limit 10 --format json`
}

// Run prints the messages.
func (c *History) Run(ctx context.Context, stdio cmdline.IO) error {
	conn, err := c.Dial()
	if err != nil {
		return err
	}
	none, err := c.read(ctx, pushmeshv1.NewHistoryServiceClient(conn), stdio.Out)
	if err == nil && none {
		cmdline.NoteEphemeral(stdio.Err, cmdline.NamespaceOf(ctx, conn, c.Topic), c.Topic)
	}
	return errors.Join(err, conn.Close())
}

// read prints; none reports whether there was nothing.
func (c *History) read(ctx context.Context, history pushmeshv1.HistoryServiceClient, out io.Writer) (none bool, err error) {
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
			if err := c.Print(out, shownStored(m)); err != nil {
				return none, err
			}
		}
	}
}

func shownStored(m *pushmeshv1.StoredMessage) *cmdline.Message {
	s := &cmdline.Message{
		Topic: m.GetTopic(), Epoch: m.GetEpoch(), Seq: m.GetSeq(), ID: cmdline.ShowID(m.GetId()), PublishedAt: cmdline.ShowTime(m.GetPublishedAt()),
		Headers: m.GetHeaders(), Priority: m.GetPriority(), From: m.GetFrom(),
	}
	s.SetPayload(m.GetPayload())
	return s
}
