// Package subscribe has the commands that print messages.
package subscribe

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

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
)

// Command is the command pushmesh sub.
type Command struct {
	Filters  []string `arg:"" name:"filter" help:"Topics or filters: + stands for one level, a final # for all levels that follow."`
	Ack      bool     `help:"ACK every message; a message that is not ACKed is delivered again."`
	Session  string   `placeholder:"NAME" help:"Name of a durable session: it continues at its stored positions (--from session is the default then)."`
	ClientID string   `name:"client-id" placeholder:"ID" help:"Client id, which a session belongs to. By default the edge chooses one."`
	From     string   `placeholder:"live|earliest|session|SEQ|EPOCH:SEQ" help:"Where to begin; SEQ is the first message that is wanted (live)."`
	Last     uint64   `placeholder:"N" help:"Begin with the last N messages."`
	SkipLast bool     `name:"skip-last" help:"Begin at the head in topics that keep their last message, too (pushmesh kept)."`
	Group    string   `placeholder:"NAME" help:"Share the messages with the other members of this group: each message goes to one member."`
	GroupKey string   `name:"group-key" placeholder:"topic|header:NAME" help:"In a group, messages of one topic, or with one value of a header, go to the same member."`
	Where    string   `placeholder:"EXPR" help:"Only messages for which this CEL expression is true; it may use headers, features, priority, topic, from and a JSON payload."`
	Presence bool     `help:"Print who is in the topics too, by user, and who comes and goes (see pushmesh namespace set --client-presence)."`
	rankedFlags
	Count     uint64        `placeholder:"N" help:"End after N messages."`
	Timeout   time.Duration `placeholder:"D" help:"End after this time; exit code 3 if --count was not reached."`
	GRPC      bool          `name:"grpc" help:"Subscribe as a backend does, through --router instead of --edge. Backends have sessions of their own, and may subscribe to topics that begin with $$."`
	WebSocket bool          `name:"websocket" help:"Connect by WebSocket, for networks that let nothing else through."`
	cmdline.TokenFlag
	cmdline.EdgeFlag
	cmdline.RouterFlag
	cmdline.FormatFlag
	// show prints a message; nil: print.
	show func(w io.Writer, d *pushmesh.Delivery) error
}

// Help of the command.
func (Command) Help() string {
	return `Prints a line for each message: TOPIC, SEQ (- for ephemeral topics) and PAYLOAD, separated by tabs. With --rank-top-k the score comes before
the payload: - if the message needs none, "unranked" if it could not be ranked. Notices about the connection go to standard error.

  pushmesh sub room/7/chat
  pushmesh sub 'room/+/chat' 'global/#' --ack --format json
  pushmesh sub room/7/chat --from earliest --count 10 --timeout 5s
  pushmesh sub room/7/jobs --group workers --ack
  pushmesh sub 'orders/#' --where 'payload.total > 100 && headers.country == "FR"'
  pushmesh sub 'user/ann/#' --session phone --client-id ann-1 --ack
  pushmesh sub news/all --rank-top-k 10 --profile sport=1,politics=0.2
  pushmesh sub 'user/ann/#' --token-file ann.jwt --tls
  pushmesh sub room/7/chat --presence
  pushmesh sub '$events/#' --grpc

Edges take the token of --token-file, and routers (--grpc) that of --router-token-file.`
}

// options of the subscriptions that the flags ask for.
func (c *Command) options() ([]pushmesh.Option, error) {
	var opts []pushmesh.Option
	if c.Ack {
		opts = append(opts, pushmesh.WithAck())
	}
	if c.GroupKey != "" && c.Group == "" {
		return nil, cmdline.Usage("--group-key needs --group")
	}
	if c.Group != "" {
		if c.Session != "" || c.From == "session" {
			return nil, cmdline.Usage("--group and --session exclude each other: a group has positions of its own")
		}
		opts = append(opts, pushmesh.WithGroup(c.Group), pushmesh.WithGroupKey(c.GroupKey))
	}
	if c.Where != "" {
		if c.Group != "" {
			return nil, cmdline.Usage("--where and --group exclude each other")
		}
		opts = append(opts, pushmesh.WithWhere(c.Where))
	}
	if c.RankTopK > 0 {
		if c.Group != "" {
			return nil, cmdline.Usage("--rank-top-k and --group exclude each other")
		}
		opts = append(opts, pushmesh.WithRankTopK(c.RankTopK))
	}
	if c.SkipLast {
		opts = append(opts, pushmesh.WithoutLast())
	}
	if c.Last > 0 && c.From != "" {
		return nil, cmdline.Usage("--from and --last exclude each other")
	}
	from, err := c.start()
	if err != nil {
		return nil, err
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
			return nil, cmdline.Usage("--rank-top-k does not support --from %s: use live or earliest, or --session", from)
		}
		epoch, seq, err := position(from)
		if err != nil {
			return nil, err
		}
		opts = append(opts, pushmesh.FromSeq(epoch, seq-1))
	}
	return opts, nil
}

// start is --from, or what stands for it where a session is named. A session has the position where
// reading begins: another one would be read and not kept.
func (c *Command) start() (string, error) {
	switch {
	case c.Session != "" && c.Last > 0:
		return "", cmdline.Usage("--last %d and --session exclude each other: a session begins at its stored positions", c.Last)
	case c.Session != "" && c.From != "" && c.From != "session":
		return "", cmdline.Usage("--from %s and --session exclude each other: a session begins at its stored positions", c.From)
	case (c.Session != "" || c.From == "session") && (c.Session == "" || c.ClientID == ""):
		return "", cmdline.Usage("a session needs --session (its name) and --client-id (its owner)")
	case c.Session != "":
		return "session", nil
	}
	return c.From, nil
}

// position reads SEQ or EPOCH:SEQ.
func position(from string) (epoch, seq uint64, err error) {
	seqText := from
	if e, s, ok := strings.Cut(from, ":"); ok {
		if epoch, err = strconv.ParseUint(e, 10, 64); err != nil {
			return 0, 0, cmdline.Usage("--from %q: the epoch must be a number, as --format json prints it", from)
		}
		seqText = s
	}
	if seq, err = strconv.ParseUint(seqText, 10, 64); err != nil || seq == 0 {
		return 0, 0, cmdline.Usage("--from %q: it must be live, earliest, session, SEQ or EPOCH:SEQ", from)
	}
	return epoch, seq, nil
}

// Run subscribes until the count, the timeout or a signal.
func (c *Command) Run(ctx context.Context, stdio cmdline.IO) error {
	opts, err := c.options()
	if err == nil {
		err = c.checkPresence()
	}
	if err != nil {
		return err
	}
	profile, vector, err := c.profile()
	if err != nil {
		return err
	}
	if c.WebSocket && c.GRPC {
		return cmdline.Usage("--websocket and --grpc exclude each other")
	}
	if c.Timeout < 0 {
		return cmdline.Usage("--timeout is %v, it must be above 0", c.Timeout)
	}
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	p := &printer{cmd: c, stdio: stdio, done: make(chan struct{})}
	connect, err := c.Dialer()
	if c.WebSocket {
		connect, err = c.WebSocketDialer()
	}
	if err == nil {
		err = c.EdgeFlag.Check()
	}
	var token func(context.Context) (string, error)
	if err == nil && !c.GRPC {
		token, err = c.Source(stdio.In)
	}
	var options []grpc.DialOption
	if c.GRPC {
		options, err = c.DialOptions()
	}
	if err != nil {
		return err
	}
	cfg := pushmesh.SubscriberConfig{
		Addrs: c.Edge, ClientID: c.ClientID, Session: c.Session, Agent: "pushmesh-cli", OnGap: p.gap, OnConnect: p.connected, OnConnectFailed: p.unconnected, OnDisconnect: p.disconnected, Token: token,
		Profile: profile, ProfileVector: vector,
	}
	var sub *pushmesh.Subscriber
	if c.GRPC {
		cfg.Addrs = c.Router
		sub, err = pushmesh.NewBackend(cfg, options...)
	} else {
		p.connect, cfg.Dial = connect, p.dial
		sub, err = pushmesh.NewSubscriber(cfg)
	}
	if err != nil {
		return cmdline.Usage("%w", err)
	}
	err = c.follow(ctx, sub, p, opts)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, sub.Close(closing))
}

func (c *Command) follow(ctx context.Context, sub *pushmesh.Subscriber, p *printer, opts []pushmesh.Option) error {
	lost := make(chan error, 2*len(c.Filters))
	for _, filter := range c.Filters {
		one, err := sub.Start(filter, p.handle, opts...)
		if err != nil {
			return err
		}
		if err := one.Ready(ctx); err != nil {
			return p.ended(ctx, err)
		}
		go func() { // until sub is closed
			<-one.Done()
			if err := one.Err(); err != nil {
				lost <- fmt.Errorf("subscription to %s: %w", filter, err)
			}
		}()
	}
	if err := c.watchPresence(ctx, sub, p, lost); err != nil {
		return err
	}
	p.tell("subscribed to %s", strings.Join(c.Filters, " "))
	select {
	case <-p.done:
		return p.err
	case <-sub.Done():
		return sub.Err()
	case err := <-lost: // the edge has ended it
		return err
	case <-ctx.Done():
		return p.ended(ctx, nil)
	}
}

// printer prints messages and counts them. Handlers of a subscriber run one at a time; follow looks
// only after done was closed.
type printer struct {
	cmd   *Command
	stdio cmdline.IO
	done  chan struct{}
	// connect is how to reach an address.
	connect func(ctx context.Context, addr string) (net.Conn, error)

	mu    sync.Mutex // guards standard error, written by several goroutines, and what is below
	n     uint64
	err   error
	bad   string      // why the last attempt to connect failed
	quiet *time.Timer // tells of an address that does not answer
}

// answerWithin is how long a process at an address may take to answer before that is told.
const answerWithin = time.Second

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
	if p.err = show(p.stdio.Out, d); p.err != nil {
		close(p.done)
		return p.err
	}
	if p.n++; p.n == p.cmd.Count {
		close(p.done)
	}
	return nil
}

func (c *Command) showMessage(w io.Writer, d *pushmesh.Delivery) error {
	m := &cmdline.Message{
		Topic: d.Topic, Epoch: d.Epoch, Seq: d.Seq, ID: d.ID.String(), PublishedAt: cmdline.ShowTime(uint64(d.PublishedAt().UnixMicro())),
		Headers: d.Headers, Priority: d.Priority, Attempt: d.Attempt, From: d.From,
		Score: d.Score, Unranked: d.Unranked,
	}
	m.SetPayload(d.Payload)
	if c.RankTopK > 0 && c.Format != "json" {
		return printRanked(w, m)
	}
	return c.Print(w, m)
}

func (p *printer) tell(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.stdio.Err, format+"\n", args...)
}

func (p *printer) gap(g pushmesh.Gap) {
	where := g.Topic
	if where == "" {
		where = g.Filter
	}
	switch {
	case g.To > 0:
		p.tell("%s: messages %d to %d will not come: %s", where, g.From, g.To, g.Code)
	case g.Missed > 0:
		p.tell("%s: %d messages will not come: %s", where, g.Missed, g.Code)
	case g.Code == pushmesh.CodeUnsupported:
		p.tell("%s is ephemeral, because no durable namespace covers it: it has no log, and --ack, --from, --last and --session have no effect (pushmesh namespace put PREFIX --durable makes it durable)", where)
	case g.Code == pushmesh.CodeEpochChanged:
		p.tell("%s: the log began again with epoch %d; continuing with its messages", where, g.Epoch)
	default:
		p.tell("%s: the log does not have the requested position; continuing with the messages that it has", where)
	}
}

func (p *printer) disconnected(err error) {
	if err != nil {
		p.tell("disconnected, trying again: %v", err)
	}
}

// dial connects, and tells of an address where nobody answers.
func (p *printer) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := p.connect(ctx, addr)
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.quiet = time.AfterFunc(answerWithin, func() {
			p.unconnected(fmt.Errorf("%s accepts connections but does not answer: is it an edge's port (7400)?", addr))
		})
	}
	return conn, err
}

func (p *printer) connected(pushmesh.Connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet != nil {
		p.quiet.Stop()
	}
	p.bad = ""
}

// unconnected tells why an edge or router can't be reached, once for each reason.
func (p *printer) unconnected(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet != nil {
		p.quiet.Stop()
	}
	if bad := strings.TrimPrefix(err.Error(), "pushmesh: "); bad != p.bad {
		p.bad = bad
		fmt.Fprintf(p.stdio.Err, "trying again: %s\n", bad)
	}
}

// notYet is why a subscription was not confirmed in time.
func notYet(err error) string {
	why := strings.TrimSuffix(strings.TrimPrefix(err.Error(), "pushmesh: "), " ("+context.DeadlineExceeded.Error()+")")
	if why == context.DeadlineExceeded.Error() {
		return "the mesh did not confirm the subscription"
	}
	return why
}

// ended is the error of a command whose context is over, or err.
func (p *printer) ended(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case err != nil:
			return fmt.Errorf("%w: %s passed, and %s", cmdline.ErrTimeout, p.cmd.Timeout, notYet(err))
		case p.cmd.Count > 0:
			return fmt.Errorf("%w: %d messages arrived in %s, --count asks for %d", cmdline.ErrTimeout, p.n, p.cmd.Timeout, p.cmd.Count)
		}
		return nil
	case ctx.Err() != nil:
		return nil
	}
	return err
}
