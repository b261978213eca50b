package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

type presenceCmd struct {
	Count presenceCount `cmd:"" help:"Count the connections that are subscribed to topics."`
	List  presenceList  `cmd:"" help:"Show the connections that are subscribed to a topic."`
	Watch presenceWatch `cmd:"" help:"Show the members of topics, then each join and leave."`
}

func (presenceCmd) Help() string {
	return `A member of a topic is a connection with at least one subscription that matches it. list and watch need presence in the policy of
the topic's namespace.

  pushmesh namespace put room --durable --presence
  pushmesh presence count room/1/chat room/2/chat
  pushmesh presence list room/1/chat --format json
  pushmesh presence watch 'room/+/chat'`
}

type presenceCount struct {
	Topic []string `arg:"" help:"Topics."`
	routerFlag
	formatFlag
}

// Run prints a line for each topic.
func (c *presenceCount) Run(ctx context.Context, stdio stdio) error {
	return withPresence(c.routerFlag, func(api pushmeshv1.PresenceServiceClient) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		answer, err := api.Count(ctx, &pushmeshv1.CountRequest{Topics: c.Topic})
		if err != nil {
			return err
		}
		for i, n := range answer.GetCounts() {
			if c.Format == "json" {
				err = writeJSON(stdio.out, shownCount{Topic: c.Topic[i], Count: n})
			} else {
				_, err = fmt.Fprintf(stdio.out, "%s\t%d\n", c.Topic[i], n)
			}
			if err != nil {
				return err
			}
		}
		return silent(stdio, answer.GetSilentEdges())
	})
}

type shownCount struct {
	Topic string `json:"topic"`
	Count uint64 `json:"count"`
}

// silent says that some edges did not answer, which makes what was printed incomplete.
func silent(stdio stdio, edges uint32) error {
	if edges == 0 {
		return nil
	}
	fmt.Fprintf(stdio.err, "pushmesh: %d edges did not answer in time: the counts lack their members\n", edges)
	return errReported
}

type presenceList struct {
	Topic string `arg:"" help:"Topic."`
	Limit int    `placeholder:"N" help:"Show at most N; all by default."`
	routerFlag
	formatFlag
}

const pageOfMembers = 1000

// Run prints the members.
func (c *presenceList) Run(ctx context.Context, stdio stdio) error {
	return withPresence(c.routerFlag, func(api pushmeshv1.PresenceServiceClient) error {
		p := newMemberPrinter(stdio.out, c.formatFlag)
		ask, missing := &pushmeshv1.PresenceServiceListRequest{Topic: c.Topic, Limit: pageOfMembers}, uint32(0)
		for left := c.Limit; ; {
			if c.Limit > 0 {
				ask.Limit = uint32(min(left, pageOfMembers))
			}
			answer, err := api.List(ctx, ask)
			if err != nil {
				return err
			}
			for _, m := range answer.GetMembers() {
				if err := p.print(m); err != nil {
					return err
				}
			}
			missing = max(missing, answer.GetSilentEdges())
			left -= len(answer.GetMembers())
			if ask.PageToken = answer.GetNextPageToken(); ask.PageToken == "" || c.Limit > 0 && left <= 0 {
				return errors.Join(p.flush(), silent(stdio, missing))
			}
		}
	})
}

type presenceWatch struct {
	Filter string `arg:"" help:"Topic, or filter with wildcards; of a filter, members are subscriptions to a topic without wildcards."`
	routerFlag
	formatFlag
}

func (presenceWatch) Help() string {
	return `Prints a line for each member: = was there at the beginning, + joined, - left. If the watch ends with an error that may pass, it begins again and
prints all members that are there then.`
}

// Run prints until it is interrupted.
func (c *presenceWatch) Run(ctx context.Context, stdio stdio) error {
	return withPresence(c.routerFlag, func(api pushmeshv1.PresenceServiceClient) error {
		for {
			err := c.watch(ctx, stdio, api)
			if ctx.Err() != nil {
				return nil // interrupted: that is how it ends
			}
			e := code.From(err)
			if e == nil || e.RetryAfter == 0 {
				return err
			}
			fmt.Fprintf(stdio.err, "pushmesh: %s: watching again\n", explain(err))
			select {
			case <-time.After(e.RetryAfter):
			case <-ctx.Done():
				return nil
			}
		}
	})
}

func (c *presenceWatch) watch(ctx context.Context, stdio stdio, api pushmeshv1.PresenceServiceClient) error {
	stream, err := api.Watch(ctx, &pushmeshv1.PresenceServiceWatchRequest{Filter: c.Filter}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for {
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, m := range answer.GetSnapshot().GetMembers() {
			if err := c.print(stdio.out, "=", answer.GetSnapshot().GetVersion(), m); err != nil {
				return err
			}
		}
		for _, ch := range answer.GetChanges() {
			sign := "+"
			if ch.GetLeft() {
				sign = "-"
			}
			if err := c.print(stdio.out, sign, ch.GetVersion(), ch.GetMember()); err != nil {
				return err
			}
		}
	}
}

func (c *presenceWatch) print(w io.Writer, sign string, version uint64, m *pushmeshv1.Member) error {
	if c.Format == "json" {
		return writeJSON(w, shownChange{Version: version, Change: map[string]string{"=": "there", "+": "joined", "-": "left"}[sign], shownMember: showMember(m)})
	}
	_, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", sign, m.GetTopic(), m.GetClientId(), m.GetSession(), m.GetEdge(), connection(m))
	return err
}

func withPresence(f routerFlag, call func(pushmeshv1.PresenceServiceClient) error) error {
	conn, err := f.dial()
	if err != nil {
		return err
	}
	return errors.Join(call(pushmeshv1.NewPresenceServiceClient(conn)), conn.Close())
}

// connection is a connection's id in hexadecimal: JSON's numbers are too short for it.
func connection(m *pushmeshv1.Member) string { return fmt.Sprintf("%016x", m.GetConnectionId()) }

type shownMember struct {
	Topic        string `json:"topic"`
	ClientID     string `json:"client_id"`
	User         string `json:"user,omitempty"`
	Session      string `json:"session,omitempty"`
	Edge         string `json:"edge"`
	Connection   string `json:"connection"`
	ConnectedAt  string `json:"connected_at"`
	SubscribedAt string `json:"subscribed_at"`
}

type shownChange struct {
	Version uint64 `json:"version"`
	Change  string `json:"change"`
	shownMember
}

func showMember(m *pushmeshv1.Member) shownMember {
	return shownMember{
		Topic: m.GetTopic(), ClientID: m.GetClientId(), User: m.GetUser(), Session: m.GetSession(), Edge: m.GetEdge(), Connection: connection(m),
		ConnectedAt: showTime(m.GetConnectedAt()), SubscribedAt: showTime(m.GetSubscribedAt()),
	}
}

// memberPrinter prints a table, or JSON line by line.
type memberPrinter struct {
	json  io.Writer // nil: a table
	table *tabwriter.Writer
}

func newMemberPrinter(w io.Writer, f formatFlag) *memberPrinter {
	if f.Format == "json" {
		return &memberPrinter{json: w}
	}
	p := &memberPrinter{table: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	fmt.Fprintln(p.table, "CLIENT\tUSER\tSESSION\tEDGE\tCONNECTION\tCONNECTED\tSUBSCRIBED")
	return p
}

func (p *memberPrinter) print(m *pushmeshv1.Member) error {
	s := showMember(m)
	if p.json != nil {
		return writeJSON(p.json, s)
	}
	_, err := fmt.Fprintf(p.table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.ClientID, s.User, s.Session, s.Edge, s.Connection, s.ConnectedAt, s.SubscribedAt)
	return err
}

func (p *memberPrinter) flush() error {
	if p.table == nil {
		return nil
	}
	return p.table.Flush()
}
