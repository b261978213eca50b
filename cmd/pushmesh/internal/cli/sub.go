package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	pushmesh "github.com/pushmesh/pushmesh/client"
)

type subCmd struct {
	Filters  []string `arg:"" name:"filter" help:"Topics or filters: + stands for one level, a last # for the rest."`
	Ack      bool     `help:"ACK every message; the mesh delivers again what was not ACKed."`
	Session  string   `placeholder:"NAME" help:"Durable session: goes on where it stood, --from session by default."`
	ClientID string   `name:"client-id" placeholder:"ID" help:"Who this is; a session belongs to it. The edge makes one by default."`
	From     string   `placeholder:"live|earliest|session|SEQ|EPOCH:SEQ" help:"Where to begin: SEQ is the first message wanted (live)."`
	Last     uint64   `placeholder:"N" help:"Begin with the last N messages."`
	Group    string   `placeholder:"NAME" help:"Share the messages with everyone in this group: each goes to one."`
	GroupKey string   `name:"group-key" placeholder:"topic|header:NAME" help:"In a group, messages of one topic, or with one value of a header, go to the same member."`
	Where    string   `placeholder:"EXPR" help:"Only messages for which this CEL expression over headers, features, priority, topic, from and a JSON payload is true."`
	rankedFlags
	Count   uint64        `placeholder:"N" help:"End after N messages."`
	Timeout time.Duration `placeholder:"D" help:"End after this time; exit code 3 if --count was not reached."`
	GRPC    bool          `name:"grpc" help:"Subscribe through --router and not at --edge, as a backend does: its sessions are its own, and it may have the mesh's own topics."`
	tlsFlags
	edgeFlag
	routerFlag
	formatFlag
	// show prints a message; nil: print.
	show func(w io.Writer, d *pushmesh.Delivery) error
}

func (subCmd) Help() string {
	return `A line is TOPIC, SEQ (- without a log) and PAYLOAD, separated by tabs; with --rank-top-k the score (- where there is none, "unranked"
where there should be one) comes before the payload. What the mesh says about itself goes to standard error.

  pushmesh sub room/7/chat
  pushmesh sub 'room/+/chat' 'global/#' --ack --format json
  pushmesh sub room/7/chat --from earliest --count 10 --timeout 5s
  pushmesh sub room/7/jobs --group workers --ack
  pushmesh sub 'orders/#' --where 'payload.total > 100 && headers.country == "FR"'
  pushmesh sub 'user/ann/#' --session phone --client-id ann-1 --ack
  pushmesh sub news/all --rank-top-k 10 --profile sport=1,politics=0.2
  pushmesh sub '$events/#' --grpc`
}

// options of the subscriptions that the flags ask for.
func (c *subCmd) options() ([]pushmesh.Option, error) {
	var opts []pushmesh.Option
	if c.Ack {
		opts = append(opts, pushmesh.WithAck())
	}
	if c.GroupKey != "" && c.Group == "" {
		return nil, usage("--group-key needs --group")
	}
	if c.Group != "" {
		if c.Session != "" || c.From == "session" {
			return nil, usage("a group has a position of its own, not a session's")
		}
		opts = append(opts, pushmesh.WithGroup(c.Group), pushmesh.WithGroupKey(c.GroupKey))
	}
	if c.Where != "" {
		if c.Group != "" {
			return nil, usage("--where is not for groups")
		}
		opts = append(opts, pushmesh.WithWhere(c.Where))
	}
	if c.RankTopK > 0 {
		if c.Group != "" {
			return nil, usage("--rank-top-k is not for groups")
		}
		opts = append(opts, pushmesh.WithRankTopK(c.RankTopK))
	}
	if c.Last > 0 && c.From != "" {
		return nil, usage("--from and --last exclude each other")
	}
	from := c.From
	if from == "" && c.Last == 0 && c.Session != "" {
		from = "session"
	}
	if from == "session" && (c.Session == "" || c.ClientID == "") {
		return nil, usage("a session needs --session and --client-id")
	}
	switch from {
	case "", "live":
		if c.Last > 0 {
			opts = append(opts, pushmesh.FromLast(c.Last))
		}
	case "earliest":
		opts = append(opts, pushmesh.FromEarliest())
	case "session":
		opts = append(opts, pushmesh.FromSession())
	default:
		if c.RankTopK > 0 {
			return nil, usage("--rank-top-k has no positions: --from %s is live, earliest or session", from)
		}
		epoch, seq, err := position(from)
		if err != nil {
			return nil, err
		}
		opts = append(opts, pushmesh.FromSeq(epoch, seq-1))
	}
	return opts, nil
}

// position reads SEQ or EPOCH:SEQ.
func position(from string) (epoch, seq uint64, err error) {
	seqText := from
	if e, s, ok := strings.Cut(from, ":"); ok {
		if epoch, err = strconv.ParseUint(e, 10, 64); err != nil {
			return 0, 0, usage("--from %q: the epoch is a number", from)
		}
		seqText = s
	}
	if seq, err = strconv.ParseUint(seqText, 10, 64); err != nil || seq == 0 {
		return 0, 0, usage("--from %q: live, earliest, session, SEQ or EPOCH:SEQ", from)
	}
	return epoch, seq, nil
}

// Run subscribes until the count, the timeout or a signal.
func (c *subCmd) Run(ctx context.Context, stdio stdio) error {
	opts, err := c.options()
	if err != nil {
		return err
	}
	profile, vector, err := c.profile()
	if err != nil {
		return err
	}
	if c.Timeout < 0 {
		return usage("--timeout is below 0")
	}
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	p := &printer{cmd: c, stdio: stdio, done: make(chan struct{})}
	addrs := c.Edge
	connect, err := c.dialer()
	if err != nil {
		return err
	}
	if c.GRPC {
		addrs, connect = c.Router, pushmesh.ThroughRouter()
	}
	p.connect = connect
	sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{
		Addrs: addrs, ClientID: c.ClientID, Session: c.Session, Agent: "pushmesh-cli", OnGap: p.gap, OnDisconnect: p.disconnected, Dial: p.dial,
		Profile: profile, ProfileVector: vector,
	})
	if err != nil {
		return usage("%w", err)
	}
	err = c.follow(ctx, sub, p, opts)
	return errors.Join(err, sub.Close())
}

func (c *subCmd) follow(ctx context.Context, sub *pushmesh.Subscriber, p *printer, opts []pushmesh.Option) error {
	for _, filter := range c.Filters {
		one, err := sub.Start(filter, p.handle, opts...)
		if err != nil {
			return err
		}
		if err := one.Ready(ctx); err != nil {
			return p.ended(ctx, err)
		}
	}
	p.tell("subscribed to %s", strings.Join(c.Filters, " "))
	select {
	case <-p.done:
		return p.err
	case <-sub.Done():
		return sub.Err()
	case <-ctx.Done():
		return p.ended(ctx, nil)
	}
}

// printer prints messages and counts them. Handlers of a subscriber run one at a time; follow looks
// only after done was closed.
type printer struct {
	cmd   *subCmd
	stdio stdio
	done  chan struct{}
	// connect is how to reach an address.
	connect func(ctx context.Context, addr string) (net.Conn, error)

	mu  sync.Mutex // guards standard error, written by several goroutines, and what is below
	n   uint64
	err error
	bad string // why the last dial failed
}

var errEnough = errors.New("enough")

func (p *printer) handle(_ context.Context, d *pushmesh.Delivery) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil || p.cmd.Count > 0 && p.n >= p.cmd.Count {
		return errEnough // not ACKed: it stays for the next one
	}
	show := p.cmd.show
	if show == nil {
		show = p.cmd.showMessage
	}
	if p.err = show(p.stdio.out, d); p.err != nil {
		close(p.done)
		return p.err
	}
	if p.n++; p.n == p.cmd.Count {
		close(p.done)
	}
	return nil
}

func (c *subCmd) showMessage(w io.Writer, d *pushmesh.Delivery) error {
	m := &shownMessage{
		Topic: d.Topic, Epoch: d.Epoch, Seq: d.Seq, ID: showID(d.ID), PublishedAt: showTime(uint64(d.PublishedAt().UnixMicro())),
		Headers: d.Headers, Priority: d.Priority, Attempt: d.Attempt, From: d.From,
		Score: d.Score, Unranked: d.Unranked,
	}
	m.setPayload(d.Payload)
	if c.RankTopK > 0 && c.Format != "json" {
		return printRanked(w, m)
	}
	return c.print(w, m)
}

func (p *printer) tell(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.stdio.err, format+"\n", args...)
}

func (p *printer) gap(g pushmesh.Gap) {
	where := g.Topic
	if where == "" {
		where = g.Filter
	}
	switch {
	case g.To > 0:
		p.tell("%s: messages %d to %d will not come: %s", where, g.From, g.To, codeName(g.Code))
	case g.Missed > 0:
		p.tell("%s: %d messages will not come: %s", where, g.Missed, codeName(g.Code))
	default:
		p.tell("%s: the log holds no such place, going on with what it has", where)
	}
}

func (p *printer) disconnected(err error) {
	if err != nil {
		p.tell("disconnected, trying again: %v", err)
	}
}

// dial tells why an edge or router can't be reached, once for each reason.
func (p *printer) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := p.connect(ctx, addr)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.bad = ""
	} else if bad := err.Error(); bad != p.bad && ctx.Err() == nil {
		p.bad = bad
		fmt.Fprintf(p.stdio.err, "no connection, trying again: %s\n", bad)
	}
	return conn, err
}

// ended is the error of a command whose context is over, or err.
func (p *printer) ended(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.cmd.Count > 0 || err != nil {
			return fmt.Errorf("%w: %d messages came in %s", errTimeout, p.n, p.cmd.Timeout)
		}
		return nil
	case ctx.Err() != nil:
		return nil
	}
	return err
}
