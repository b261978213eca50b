// Package publish has the commands that publish messages.
package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Command is the command pushmesh pub.
type Command struct {
	Topic     string        `arg:"" help:"Topic to publish to."`
	Payload   *string       `arg:"" optional:"" help:"Payload of the message; standard input by default."`
	Lines     bool          `help:"Publish each line of the input as a message, in order and exactly once."`
	File      string        `type:"existingfile" placeholder:"FILE" help:"Read the input from a file."`
	Header    []string      `sep:"none" placeholder:"NAME=VALUE" help:"Header; may be given several times."`
	Feature   []string      `sep:"none" placeholder:"NAME=NUMBER" help:"Number for content filters and ranking, which subscribers don't get; may be given several times."`
	TTL       time.Duration `name:"ttl" placeholder:"D" help:"Don't deliver the message after this time."`
	DeliverAt time.Time     `placeholder:"TIME" help:"Publish the message at this time, like 2027-01-31T08:00:00Z; at most 366 days ahead."`
	Delay     time.Duration `placeholder:"D" help:"Publish the message after this time."`
	DedupeKey string        `placeholder:"KEY" help:"Dedupe key: a second message with the same key is not stored, and answered with the first result."`
	Priority  uint32        `placeholder:"0-9" help:"Priority between messages of different topics; higher ones are sent first."`
	Timeout   time.Duration `default:"15s" placeholder:"D" help:"How long to wait for the answer (${default})."`
	cmdline.RouterFlag
	cmdline.FormatFlag

	features map[string]float64
}

// Help of the command.
func (Command) Help() string {
	return `Prints the seq (- for an ephemeral topic or a scheduled message) and the id of each message once it is on disk.

  pushmesh pub room/7/chat 'hello'
  pushmesh pub user/ann/inbox --file letter.txt --header kind=letter --ttl 1h
  pushmesh pub orders/new 'order 17' --dedupe-key order-17 --format json
  pushmesh pub user/ann/inbox 'see you tomorrow' --delay 24h   # scheduled; pushmesh cancel ID withdraws it
  tail -f app.log | pushmesh pub room/ops/log --lines`
}

func (c *Command) check() error {
	switch {
	case c.Payload != nil && (c.Lines || c.File != ""):
		return cmdline.Usage("PAYLOAD, --lines and --file exclude each other")
	case c.Lines && c.DedupeKey != "":
		return cmdline.Usage("--dedupe-key is for one message, not for --lines")
	case !c.DeliverAt.IsZero() && c.Delay != 0:
		return cmdline.Usage("--deliver-at and --delay exclude each other")
	case c.Delay < 0:
		return cmdline.Usage("--delay is %v, it must be above 0", c.Delay)
	case c.Priority > 9:
		return cmdline.Usage("--priority is %d, it must be 0 to 9", c.Priority)
	case c.TTL < 0:
		return cmdline.Usage("--ttl is %v, it must be above 0", c.TTL)
	case c.Timeout <= 0:
		return cmdline.Usage("--timeout is %v, it must be above 0", c.Timeout)
	}
	return nil
}

// Run publishes.
func (c *Command) Run(ctx context.Context, stdio cmdline.IO) error {
	if err := c.check(); err != nil {
		return err
	}
	headers, err := cmdline.KeyValues("header", c.Header)
	if err != nil {
		return err
	}
	if c.features, err = cmdline.Numbers("feature", c.Feature); err != nil {
		return err
	}
	in := stdio.In
	if c.File != "" {
		f, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	if c.Lines {
		return c.publishLines(ctx, in, stdio.Out, headers)
	}
	var payload []byte
	if c.Payload != nil {
		payload = []byte(*c.Payload)
	} else if payload, err = io.ReadAll(in); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return c.publishOne(ctx, stdio, payload, headers)
}

func (c *Command) publishOne(ctx context.Context, stdio cmdline.IO, payload []byte, headers map[string]string) error {
	conn, err := c.Dial()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	req := &pushmeshv1.PublishRequest{Topic: c.Topic, Payload: payload, Headers: headers, DedupeKey: c.DedupeKey, Priority: c.Priority, Features: c.features}
	if c.TTL > 0 {
		req.Ttl = durationpb.New(c.TTL)
	}
	if at := c.deliverAt(); !at.IsZero() {
		req.DeliverAt = timestamppb.New(at)
	}
	answer, err := pushmeshv1.NewPublishServiceClient(conn).Publish(ctx, req)
	if err == nil && unkept(answer) {
		// An ephemeral topic may be meant: where its namespace says so, nothing is said.
		if n := cmdline.NamespaceOf(ctx, conn, c.Topic); n.GetPrefix() == cmdline.DefaultPrefix {
			cmdline.NoteEphemeral(stdio.Err, n, c.Topic)
		}
	}
	if err := errors.Join(err, conn.Close()); err != nil {
		return err
	}
	var id pushmesh.ID
	copy(id[:], answer.GetMessageId())
	return c.printResult(stdio.Out, pushmesh.Result{
		ID: id, Seq: answer.GetSeq(), Epoch: answer.GetEpoch(), Duplicate: answer.GetDuplicate(), Scheduled: answer.GetScheduled(),
	})
}

// unkept reports whether an answer is of an ephemeral topic.
func unkept(answer *pushmeshv1.PublishResponse) bool {
	return answer.GetSeq() == 0 && answer.GetEpoch() == 0 && !answer.GetScheduled() && !answer.GetDuplicate()
}

// deliverAt is when to publish; the zero time: now.
func (c *Command) deliverAt() time.Time {
	if c.Delay > 0 {
		return time.Now().Add(c.Delay)
	}
	return c.DeliverAt
}

// shownResult is what `pub --format json` prints.
type shownResult struct {
	Topic     string `json:"topic"`
	Epoch     uint64 `json:"epoch,omitempty"`
	Seq       uint64 `json:"seq,omitempty"`
	ID        string `json:"id"`
	Duplicate bool   `json:"duplicate,omitempty"`
	Scheduled bool   `json:"scheduled,omitempty"`
}

func (c *Command) printResult(out io.Writer, r pushmesh.Result) error {
	if c.Format == "json" {
		return cmdline.WriteJSON(out, shownResult{Topic: c.Topic, Epoch: r.Epoch, Seq: r.Seq, ID: r.ID.String(), Duplicate: r.Duplicate, Scheduled: r.Scheduled})
	}
	seq := "-"
	if r.Seq > 0 {
		seq = fmt.Sprint(r.Seq)
	}
	more := ""
	if r.Scheduled {
		more = "\tscheduled"
	}
	if r.Duplicate {
		more += "\tduplicate"
	}
	_, err := fmt.Fprintf(out, "%s\t%s%s\n", seq, r.ID.String(), more)
	return err
}
