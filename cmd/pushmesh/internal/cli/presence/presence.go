// Package presence has the commands that say who is subscribed.
package presence

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

type Command struct {
	Count presenceCount `cmd:"" help:"Count the connections that are subscribed to topics."`
	List  presenceList  `cmd:"" help:"Show the connections that are subscribed to a topic."`
	Watch presenceWatch `cmd:"" help:"Show the members of topics, then each join and leave."`
}

func (Command) Help() string {
	return `A member of a topic is a connection with at least one subscription that matches it. list and watch need presence in the policy of
the topic's namespace.

  pushmesh namespace put room --durable --presence
  pushmesh presence count room/1/chat room/2/chat
  pushmesh presence list room/1/chat --format json
  pushmesh presence watch 'room/+/chat'`
}

type presenceCount struct {
	Topic []string `arg:"" help:"Topics."`
	cmdline.RouterFlag
	cmdline.FormatFlag
}

// Run prints a line for each topic.
func (c *presenceCount) Run(ctx context.Context, stdio cmdline.IO) error {
	return cmdline.Call(ctx, c.RouterFlag, cmdline.CallTimeout, pushmeshv1.NewPresenceServiceClient, func(ctx context.Context, api pushmeshv1.PresenceServiceClient) error {
		answer, err := api.Count(ctx, &pushmeshv1.CountRequest{Topics: c.Topic})
		if err != nil {
			return err
		}
		for i, n := range answer.GetCounts() {
			if c.Format == "json" {
				err = cmdline.WriteJSON(stdio.Out, shownCount{Topic: c.Topic[i], Count: n})
			} else {
				_, err = fmt.Fprintf(stdio.Out, "%s\t%d\n", c.Topic[i], n)
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
func silent(stdio cmdline.IO, edges uint32) error {
	if edges == 0 {
		return nil
	}
	fmt.Fprintf(stdio.Err, "pushmesh: %d edges did not answer in time: the counts lack their members\n", edges)
	return cmdline.ErrReported
}

type presenceList struct {
	Topic string `arg:"" help:"Topic."`
	Limit int    `placeholder:"N" help:"Show at most N; all by default."`
	cmdline.RouterFlag
	cmdline.FormatFlag
}

const pageOfMembers = 1000

// Run prints the members.
func (c *presenceList) Run(ctx context.Context, stdio cmdline.IO) error {
	return withPresence(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.PresenceServiceClient) error {
		t, missing := c.Table(stdio.Out, "CLIENT", "USER", "SESSION", "EDGE", "CONNECTION", "CONNECTED", "SUBSCRIBED"), uint32(0)
		err := cmdline.Pages(c.Limit, pageOfMembers, func(n uint32, token string) (int, string, error) {
			answer, err := api.List(ctx, &pushmeshv1.PresenceServiceListRequest{Topic: c.Topic, Limit: n, PageToken: token})
			for _, m := range answer.GetMembers() {
				s := showMember(m)
				if err := t.Row(s, s.ClientID, s.User, s.Session, s.Edge, s.Connection, s.ConnectedAt, s.SubscribedAt); err != nil {
					return 0, "", err
				}
			}
			missing = max(missing, answer.GetSilentEdges())
			return len(answer.GetMembers()), answer.GetNextPageToken(), err
		})
		if err != nil {
			return err
		}
		return errors.Join(t.Flush(), silent(stdio, missing))
	})
}

type presenceWatch struct {
	Filter string `arg:"" help:"Topic, or filter with wildcards; of a filter, members are subscriptions to a topic without wildcards."`
	cmdline.RouterFlag
	cmdline.FormatFlag
}

func (presenceWatch) Help() string {
	return `Prints a line for each member: = was there at the beginning, + joined, - left. If the watch ends with an error that may pass, it begins again and
prints all members that are there then.`
}

// Run prints until it is interrupted.
func (c *presenceWatch) Run(ctx context.Context, stdio cmdline.IO) error {
	return withPresence(ctx, c.RouterFlag, func(ctx context.Context, api pushmeshv1.PresenceServiceClient) error {
		return cmdline.Again(ctx, stdio, func(e *code.Error) bool { return e.RetryAfter > 0 }, func() error { return c.watch(ctx, stdio, api) })
	})
}

func (c *presenceWatch) watch(ctx context.Context, stdio cmdline.IO, api pushmeshv1.PresenceServiceClient) error {
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
			if err := c.print(stdio.Out, "=", answer.GetSnapshot().GetVersion(), m); err != nil {
				return err
			}
		}
		for _, ch := range answer.GetChanges() {
			sign := "+"
			if ch.GetLeft() {
				sign = "-"
			}
			if err := c.print(stdio.Out, sign, ch.GetVersion(), ch.GetMember()); err != nil {
				return err
			}
		}
	}
}

func (c *presenceWatch) print(w io.Writer, sign string, version uint64, m *pushmeshv1.Member) error {
	if c.Format == "json" {
		return cmdline.WriteJSON(w, shownChange{Version: version, Change: map[string]string{"=": "there", "+": "joined", "-": "left"}[sign], shownMember: showMember(m)})
	}
	_, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", sign, m.GetTopic(), m.GetClientId(), m.GetSession(), m.GetEdge(), connection(m))
	return err
}

func withPresence(ctx context.Context, f cmdline.RouterFlag, call func(context.Context, pushmeshv1.PresenceServiceClient) error) error {
	return cmdline.Call(ctx, f, 0, pushmeshv1.NewPresenceServiceClient, call)
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
		ConnectedAt: cmdline.ShowTime(m.GetConnectedAt()), SubscribedAt: cmdline.ShowTime(m.GetSubscribedAt()),
	}
}
