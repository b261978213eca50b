// Package dlq has the commands on dead letters.
package dlq

import (
	"context"
	"fmt"
	"io"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

type Command struct {
	List    dlqList    `cmd:"" help:"Show dead letters, the oldest first."`
	Replay  dlqReplay  `cmd:"" help:"Publish dead letters again to their topics, and remove them."`
	Discard dlqDiscard `cmd:"" help:"Remove dead letters for good."`
}

func (Command) Help() string {
	return `A session or group gives a message up after the namespace's max_attempts, or when its TTL ends before it was ACKed. The message is
then kept as a dead letter until it is replayed or discarded.

  pushmesh dlq list
  pushmesh dlq list 'orders/#' --format json
  pushmesh dlq replay --id 17 --id 18
  pushmesh dlq replay 'orders/#'
  pushmesh dlq discard 'orders/#'`
}

type dlqList struct {
	Filter string `arg:"" optional:"" help:"Topic, or filter of topics; all by default."`
	Limit  int    `placeholder:"N" help:"Show at most N; all by default."`
	cmdline.RouterFlag
	cmdline.FormatFlag
}

func (dlqList) Help() string {
	return `  pushmesh dlq list
  pushmesh dlq list 'room/+/chat' --limit 20
  pushmesh dlq list --format json | jq .payload`
}

// pageOfLetters is how many are asked for at a time.
const pageOfLetters = 500

// Run prints the letters.
func (c *dlqList) Run(ctx context.Context, stdio cmdline.IO) error {
	return withLetters(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.DeadLetterServiceClient) error {
		t := c.Table(stdio.Out, "ID", "TOPIC", "SEQ", "REASON", "ATTEMPTS", "USER", "SESSION", "AT")
		err := cmdline.Pages(c.Limit, pageOfLetters, func(n uint32, token string) (int, string, error) {
			answer, err := api.List(ctx, &pushmeshv1.DeadLetterServiceListRequest{Filter: c.Filter, Limit: n, PageToken: token})
			for _, l := range answer.GetDeadLetters() {
				s := showLetter(l)
				if err := t.Row(s, s.Letter, s.Topic, s.Seq, s.Reason, s.Attempts, s.User, s.Session, s.At); err != nil {
					return 0, "", err
				}
			}
			return len(answer.GetDeadLetters()), answer.GetNextPageToken(), err
		})
		if err != nil {
			return err
		}
		return t.Flush()
	})
}

// chosen is which letters a command means: some, or those of a filter.
type chosen struct {
	Filter string   `arg:"" optional:"" help:"Dead letters whose topic matches this filter; '#' matches all."`
	ID     []uint64 `placeholder:"ID" help:"Id of a dead letter, as list prints it; may be given several times."`
	cmdline.RouterFlag
}

func (c *chosen) check() error {
	if (c.Filter == "") == (len(c.ID) == 0) {
		return cmdline.Usage("give either a filter, or dead letters by --id")
	}
	return nil
}

// none says that nothing was chosen. That is no failure: it may have been done before.
func (c *chosen) none(w io.Writer) error {
	what := fmt.Sprintf("no dead letter's topic matches %q", c.Filter)
	if c.Filter == "" {
		what = "there is no dead letter with such an id"
	}
	_, err := fmt.Fprintf(w, "pushmesh: %s (pushmesh dlq list shows all)\n", what)
	return err
}

type dlqReplay struct{ chosen }

func (dlqReplay) Help() string {
	return `Every subscriber of the topic gets the message again, with a new seq. It is published only once, even if this command is repeated.
The exit code is 1 if some could not be published; these are kept.

  pushmesh dlq replay --id 17
  pushmesh dlq replay 'orders/#'`
}

// Run replays and says how many.
func (c *dlqReplay) Run(ctx context.Context, stdio cmdline.IO) error {
	if err := c.check(); err != nil {
		return err
	}
	return withLetters(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.DeadLetterServiceClient) error {
		answer, err := api.Replay(ctx, &pushmeshv1.DeadLetterServiceReplayRequest{Ids: c.ID, Filter: c.Filter})
		if err != nil {
			return err
		}
		fmt.Fprintf(stdio.Out, "%d replayed\n", answer.GetReplayed())
		if answer.GetReplayed()+answer.GetFailed() == 0 {
			return c.none(stdio.Err)
		}
		for _, f := range answer.GetFailures() {
			fmt.Fprintf(stdio.Err, "pushmesh: dead letter %d was not replayed and is kept: %s: %s\n", f.GetId(), code.Name(f.GetCode()), f.GetError())
		}
		if answer.GetFailed() > 0 {
			fmt.Fprintf(stdio.Err, "pushmesh: %d could not be replayed\n", answer.GetFailed())
			return cmdline.ErrReported
		}
		return nil
	})
}

type dlqDiscard struct{ chosen }

func (dlqDiscard) Help() string {
	return `  pushmesh dlq discard --id 17 --id 18
  pushmesh dlq discard 'orders/#'`
}

// Run discards and says how many.
func (c *dlqDiscard) Run(ctx context.Context, stdio cmdline.IO) error {
	if err := c.check(); err != nil {
		return err
	}
	return withLetters(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.DeadLetterServiceClient) error {
		answer, err := api.Discard(ctx, &pushmeshv1.DeadLetterServiceDiscardRequest{Ids: c.ID, Filter: c.Filter})
		if err != nil {
			return err
		}
		fmt.Fprintf(stdio.Out, "%d discarded\n", answer.GetDiscarded())
		if answer.GetDiscarded() == 0 {
			return c.none(stdio.Err)
		}
		return nil
	})
}

// withLetters has no time limit of its own: there may be many letters, and Ctrl-C ends it.
func withLetters(ctx context.Context, f cmdline.RouterFlag, call func(context.Context, pushmeshv1.DeadLetterServiceClient) error) error {
	return cmdline.Call(ctx, f, 0, pushmeshv1.NewDeadLetterServiceClient, call)
}

// shownLetter is a dead letter as JSON prints it.
type shownLetter struct {
	Letter   uint64 `json:"letter"`
	Reason   string `json:"reason"`
	Attempts uint32 `json:"attempts"`
	User     string `json:"user"`
	Session  string `json:"session"`
	At       string `json:"at"`
	*cmdline.Message
}

func showLetter(l *pushmeshv1.DeadLetter) shownLetter {
	m := &cmdline.Message{
		Topic: l.GetTopic(), Epoch: l.GetEpoch(), Seq: l.GetSeq(), ID: cmdline.ShowID(l.GetMessageId()), PublishedAt: cmdline.ShowTime(l.GetPublishedAt()),
		Headers: l.GetHeaders(), Priority: l.GetPriority(), From: l.GetFrom(),
	}
	m.SetPayload(l.GetPayload())
	return shownLetter{
		Letter: l.GetId(), Reason: code.Name(l.GetReason()), Attempts: l.GetAttempts(), User: l.GetUser(), Session: l.GetSession(),
		At: cmdline.ShowTime(l.GetAt()), Message: m,
	}
}
