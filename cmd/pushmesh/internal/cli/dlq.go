package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

type dlqCmd struct {
	List    dlqList    `cmd:"" help:"Show dead letters, the oldest first."`
	Replay  dlqReplay  `cmd:"" help:"Publish dead letters again to their topics, and remove them."`
	Discard dlqDiscard `cmd:"" help:"Remove dead letters for good."`
}

func (dlqCmd) Help() string {
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
	routerFlag
	formatFlag
}

func (dlqList) Help() string {
	return `  pushmesh dlq list
  pushmesh dlq list 'room/+/chat' --limit 20
  pushmesh dlq list --format json | jq .payload`
}

// pageOfLetters is how many are asked for at a time.
const pageOfLetters = 500

// Run prints the letters.
func (c *dlqList) Run(ctx context.Context, stdio stdio) error {
	return withLetters(ctx, c.routerFlag, func(ctx context.Context, api pushmeshv1.DeadLetterServiceClient) error {
		p := newLetterPrinter(stdio.out, c.formatFlag)
		ask := &pushmeshv1.DeadLetterServiceListRequest{Filter: c.Filter, Limit: pageOfLetters}
		for left := c.Limit; ; {
			if c.Limit > 0 {
				ask.Limit = uint32(min(left, pageOfLetters))
			}
			answer, err := api.List(ctx, ask)
			if err != nil {
				return err
			}
			for _, l := range answer.GetDeadLetters() {
				if err := p.print(l); err != nil {
					return err
				}
			}
			left -= len(answer.GetDeadLetters())
			if ask.PageToken = answer.GetNextPageToken(); ask.PageToken == "" || c.Limit > 0 && left <= 0 {
				return p.flush()
			}
		}
	})
}

// chosen is which letters a command means: some, or those of a filter.
type chosen struct {
	Filter string   `arg:"" optional:"" help:"Dead letters whose topic matches this filter; '#' matches all."`
	ID     []uint64 `placeholder:"ID" help:"Id of a dead letter, as list prints it; may be given several times."`
	routerFlag
}

func (c *chosen) check() error {
	if (c.Filter == "") == (len(c.ID) == 0) {
		return usage("give either a filter, or dead letters by --id")
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
func (c *dlqReplay) Run(ctx context.Context, stdio stdio) error {
	if err := c.check(); err != nil {
		return err
	}
	return withLetters(ctx, c.routerFlag, func(ctx context.Context, api pushmeshv1.DeadLetterServiceClient) error {
		answer, err := api.Replay(ctx, &pushmeshv1.DeadLetterServiceReplayRequest{Ids: c.ID, Filter: c.Filter})
		if err != nil {
			return err
		}
		fmt.Fprintf(stdio.out, "%d replayed\n", answer.GetReplayed())
		if answer.GetReplayed()+answer.GetFailed() == 0 {
			return c.none(stdio.err)
		}
		for _, f := range answer.GetFailures() {
			fmt.Fprintf(stdio.err, "pushmesh: dead letter %d was not replayed and is kept: %s: %s\n", f.GetId(), codeName(f.GetCode()), f.GetError())
		}
		if answer.GetFailed() > 0 {
			fmt.Fprintf(stdio.err, "pushmesh: %d could not be replayed\n", answer.GetFailed())
			return errReported
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
func (c *dlqDiscard) Run(ctx context.Context, stdio stdio) error {
	if err := c.check(); err != nil {
		return err
	}
	return withLetters(ctx, c.routerFlag, func(ctx context.Context, api pushmeshv1.DeadLetterServiceClient) error {
		answer, err := api.Discard(ctx, &pushmeshv1.DeadLetterServiceDiscardRequest{Ids: c.ID, Filter: c.Filter})
		if err != nil {
			return err
		}
		fmt.Fprintf(stdio.out, "%d discarded\n", answer.GetDiscarded())
		if answer.GetDiscarded() == 0 {
			return c.none(stdio.err)
		}
		return nil
	})
}

// withLetters has no time limit of its own: there may be many letters, and Ctrl-C ends it.
func withLetters(ctx context.Context, f routerFlag, call func(context.Context, pushmeshv1.DeadLetterServiceClient) error) error {
	conn, err := f.dial()
	if err != nil {
		return err
	}
	return errors.Join(call(ctx, pushmeshv1.NewDeadLetterServiceClient(conn)), conn.Close())
}

// shownLetter is a dead letter as JSON prints it.
type shownLetter struct {
	Letter   uint64 `json:"letter"`
	Reason   string `json:"reason"`
	Attempts uint32 `json:"attempts"`
	User     string `json:"user"`
	Session  string `json:"session"`
	At       string `json:"at"`
	*shownMessage
}

// letterPrinter prints a table, or JSON line by line.
type letterPrinter struct {
	json  io.Writer // nil: a table
	table *tabwriter.Writer
}

func newLetterPrinter(w io.Writer, f formatFlag) *letterPrinter {
	if f.Format == "json" {
		return &letterPrinter{json: w}
	}
	p := &letterPrinter{table: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	fmt.Fprintln(p.table, "ID\tTOPIC\tSEQ\tREASON\tATTEMPTS\tUSER\tSESSION\tAT")
	return p
}

func (p *letterPrinter) print(l *pushmeshv1.DeadLetter) error {
	if p.json == nil {
		_, err := fmt.Fprintf(p.table, "%d\t%s\t%d\t%s\t%d\t%s\t%s\t%s\n", l.GetId(), l.GetTopic(), l.GetSeq(), codeName(l.GetReason()),
			l.GetAttempts(), l.GetUser(), l.GetSession(), showTime(l.GetAt()))
		return err
	}
	m := &shownMessage{
		Topic: l.GetTopic(), Epoch: l.GetEpoch(), Seq: l.GetSeq(), ID: showID(l.GetMessageId()), PublishedAt: showTime(l.GetPublishedAt()),
		Headers: l.GetHeaders(), Priority: l.GetPriority(), From: l.GetFrom(),
	}
	m.setPayload(l.GetPayload())
	return writeJSON(p.json, shownLetter{
		Letter: l.GetId(), Reason: codeName(l.GetReason()), Attempts: l.GetAttempts(), User: l.GetUser(), Session: l.GetSession(),
		At: showTime(l.GetAt()), shownMessage: m,
	})
}

func (p *letterPrinter) flush() error {
	if p.table == nil {
		return nil
	}
	return p.table.Flush()
}
