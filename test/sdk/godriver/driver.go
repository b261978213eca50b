// Package godriver joins the Go SDK to the line protocol of test/sdk: it does what the lines that
// it reads say, and tells what the SDK tells.
package godriver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/client/claim"
	"github.com/pushmesh/pushmesh/client/presence"
	"github.com/pushmesh/pushmesh/client/pushmesh"
)

// order is a line of standard input.
type order struct {
	Do, Name                                         string
	Transport                                        string
	Addresses                                        []string
	ClientID                                         string `json:"client_id"`
	Session                                          string
	HeartbeatMs                                      int64 `json:"heartbeat_ms"`
	AttemptMs                                        int64 `json:"attempt_ms"`
	Window                                           int
	Profile                                          map[string]float64
	BackoffMs                                        []int64 `json:"backoff_ms"`
	Tokens                                           []json.RawMessage
	Filter, Start, Group, Where, Topic, With, Reason string
	GroupKey                                         string `json:"group_key"`
	Ack, Hold, Manual                                bool
	NoEcho                                           bool `json:"no_echo"`
	SkipLast                                         bool `json:"skip_last"`
	Seq, Epoch, N                                    whole
	Positions                                        []place
	RankTopK                                         uint32 `json:"rank_top_k"`
	AfterMs                                          int64  `json:"after_ms"`
	Payload, State, Resource, Token                  string
	DedupeKey                                        string `json:"dedupe_key"`
	Headers                                          map[string]string
	TTLMs                                            int64 `json:"ttl_ms"`
	Priority                                         uint32
	NoWait                                           bool `json:"no_wait"`
}

type place struct {
	Topic      string
	Epoch, Seq whole
}

// whole is a number, in a string or not.
type whole uint64

func (w *whole) UnmarshalJSON(b []byte) error {
	_, err := fmt.Sscan(strings.Trim(string(b), `"`), (*uint64)(w))
	return err
}

type tell map[string]any

// driver has one client. Its maps are those of what scenes have named.
type driver struct {
	fault string
	out   sync.Mutex
	lines *json.Encoder

	mu      sync.Mutex
	client  *pushmesh.Subscriber
	tokens  []json.RawMessage
	subs    map[string]*pushmesh.Subscription
	names   map[string]string // of subscriptions, by filter
	claims  map[string]*claim.Place
	watches map[string]*presence.Watcher
	held    map[string]heldMessage        // by what heldKey makes of them
	cancels map[string]context.CancelFunc // of calls that may be cancelled
}

// Run serves the lines of in until its end. A fault makes it an SDK that the scenes are to find:
// "lose" a message, "double" one, or "hammer" edges without a pause.
func Run(in io.Reader, out io.Writer, fault string) error {
	d := &driver{
		fault: fault, lines: json.NewEncoder(out), subs: map[string]*pushmesh.Subscription{}, names: map[string]string{},
		claims: map[string]*claim.Place{}, watches: map[string]*presence.Watcher{}, held: map[string]heldMessage{},
		cancels: map[string]context.CancelFunc{},
	}
	d.tell("ready", tell{"sdk": "pushmesh-go", "transports": []string{"tcp", "websocket"}})
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return fmt.Errorf("%s: %w", lines.Text(), err)
		}
		if err := d.carryOut(&o); err != nil {
			d.fail(o.Name, err)
		}
	}
	return lines.Err()
}

func (d *driver) tell(what string, members tell) {
	members["told"] = what
	d.out.Lock()
	defer d.out.Unlock()
	_ = d.lines.Encode(members) // whoever reads is gone: so are we, soon
}

func (d *driver) fail(name string, err error) {
	if errors.Is(err, context.Canceled) {
		d.tell("cancelled", tell{"name": name})
		return
	}
	var e *pushmesh.Error
	d.tell("failed", tell{"name": name, "code": codeOf(err), "unknown": errors.As(err, &e) && e.Unknown, "message": err.Error()})
}

func codeOf(err error) string {
	if errors.Is(err, claim.ErrHeldByOther) {
		return "HELD_BY_OTHER"
	}
	return codeName(pushmesh.CodeOf(err))
}

// codeName is the name of a code; one that the SDK does not know is INTERNAL, and so is what nobody
// has refused.
func codeName(c pushmesh.Code) string {
	if name := c.String(); c != pushmesh.CodeNone && !strings.HasPrefix(name, "CODE_") {
		return name
	}
	return "INTERNAL"
}

func (d *driver) carryOut(o *order) error {
	ctx := context.Background()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch o.Do {
	case "connect":
		return d.connect(o)
	case "subscribe":
		d.subscribe(o)
	case "answer":
		d.answer(o)
	case "unsubscribe":
		if sub := d.subs[o.Name]; sub != nil {
			go func() { _ = sub.Unsubscribe(ctx) }()
		} else {
			d.cancels[o.Name]()
		}
	case "cancel":
		d.cancels[o.Name]()
	case "positions":
		var all []tell
		for _, p := range d.subs[o.Name].Positions() {
			all = append(all, tell{"topic": p.Topic, "epoch": p.Epoch, "seq": p.Seq})
		}
		d.tell("positions", tell{"name": o.Name, "positions": all})
	case "publish":
		d.publish(o)
	case "claim":
		go d.claim(d.cancellable(o.Name), d.client, o)
	case "release":
		c := d.claims[o.Name]
		d.later(o.Name, "released", func() error { return c.Release(ctx) })
	case "watch":
		go d.watch(d.client, o)
	case "unwatch":
		d.watches[o.Name].Stop()
	case "state":
		client := d.client
		d.later(o.Name, "stated", func() error { return presence.SetState(ctx, client, o.Topic, []byte(o.State)) })
	case "refresh":
		client := d.client
		d.later(o.Name, "refreshed", func() error {
			_, err := client.RefreshToken(ctx, o.Token)
			return err
		})
	case "close":
		client := d.client
		go func() {
			_ = client.Close(ctx) // what ended it was told
			d.tell("closed", tell{})
		}()
	default:
		return fmt.Errorf("there is nothing to do that is called %q", o.Do)
	}
	return nil
}

// cancellable is the context of a call. Called with d.mu held.
func (d *driver) cancellable(name string) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	d.cancels[name] = cancel
	return ctx
}

// later tells how a call has ended.
func (d *driver) later(name, done string, call func() error) {
	go func() {
		if err := call(); err != nil {
			d.fail(name, err)
			return
		}
		d.tell(done, tell{"name": name})
	}()
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func (d *driver) connect(o *order) error {
	cfg := pushmesh.SubscriberConfig{
		Addrs: o.Addresses, ClientID: o.ClientID, Session: o.Session, ReceiveWindow: o.Window, Heartbeat: ms(o.HeartbeatMs), Profile: o.Profile,
		MinBackoff: ms(o.BackoffMs[0]), MaxBackoff: ms(o.BackoffMs[1]), DialTimeout: ms(o.AttemptMs), WebSocket: o.Transport == "websocket",
		OnConnect: func(c pushmesh.Connection) {
			d.tell("connected", tell{"edge": c.Edge, "client_id": c.ClientID, "user": c.User, "resumed": c.Resumed})
		},
		OnDisconnect:    func(err error) { d.tell("disconnected", tell{"code": codeOf(err), "message": fmt.Sprint(err)}) },
		OnConnectFailed: func(err error) { d.tell("connect failed", tell{"code": codeOf(err), "message": err.Error()}) },
		OnGap:           d.gap,
	}
	if d.fault == "hammer" {
		cfg.MinBackoff, cfg.MaxBackoff = 1, 1
	}
	if d.tokens = o.Tokens; len(o.Tokens) > 0 {
		cfg.Token = d.token
	}
	client, err := pushmesh.NewSubscriber(cfg)
	if err != nil {
		return err
	}
	d.client = client
	go func() {
		<-client.Done()
		if err := client.Err(); err != nil {
			d.tell("ended", tell{"code": codeOf(err), "message": err.Error()})
		}
	}()
	return nil
}

// token is the next one of the scene.
func (d *driver) token(context.Context) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := d.tokens[0]
	if len(d.tokens) > 1 {
		d.tokens = d.tokens[1:]
	}
	var token *string
	if json.Unmarshal(next, &token) != nil {
		return "", errors.New(string(next))
	}
	if token == nil {
		return "", pushmesh.ErrNoToken
	}
	return *token, nil
}

func (d *driver) gap(g pushmesh.Gap) {
	d.mu.Lock()
	name := d.names[g.Filter]
	d.mu.Unlock()
	d.tell("gap", tell{"name": name, "topic": g.Topic, "epoch": g.Epoch, "from": g.From, "to": g.To, "missed": g.Missed, "code": codeName(g.Code)})
}

func (d *driver) subscribe(o *order) {
	client, ctx := d.client, d.cancellable(o.Name)
	d.names[o.Filter] = o.Name
	go func() {
		sub, err := client.Subscribe(ctx, o.Filter, d.handler(o), options(o)...)
		var refused *pushmesh.Error
		switch {
		case errors.As(err, &refused) && !errors.Is(err, pushmesh.ErrBadTopic) && ctx.Err() == nil && client.Err() == nil:
			// by the edge
			d.tell("ended", tell{"name": o.Name, "code": codeOf(err)})
			return
		case errors.Is(err, pushmesh.ErrClosed):
			return
		case err != nil:
			d.fail(o.Name, err)
			return
		}
		d.mu.Lock()
		d.subs[o.Name] = sub
		d.mu.Unlock()
		d.tell("subscribed", tell{"name": o.Name})
		<-sub.Done()
		if err := sub.Err(); err != nil && client.Err() == nil && !errors.Is(err, pushmesh.ErrClosed) {
			d.tell("ended", tell{"name": o.Name, "code": codeOf(err)})
		}
	}()
}

func options(o *order) (all []pushmesh.Option) {
	add := func(wanted bool, opt pushmesh.Option) {
		if wanted {
			all = append(all, opt)
		}
	}
	add(o.Ack, pushmesh.WithAck())
	add(o.Manual, pushmesh.WithManualAck())
	add(o.Start == "earliest", pushmesh.FromEarliest())
	add(o.Start == "after", pushmesh.FromSeq(uint64(o.Epoch), uint64(o.Seq)))
	add(o.Start == "last", pushmesh.FromLast(uint64(o.N)))
	add(o.Start == "session", pushmesh.FromSession())
	var positions []pushmesh.Position
	for _, p := range o.Positions {
		positions = append(positions, pushmesh.Position{Topic: p.Topic, Epoch: uint64(p.Epoch), Seq: uint64(p.Seq)})
	}
	add(len(positions) > 0, pushmesh.FromPositions(positions...))
	add(o.Group != "", pushmesh.WithGroup(o.Group))
	add(o.GroupKey != "", pushmesh.WithGroupKey(o.GroupKey))
	add(o.Where != "", pushmesh.WithWhere(o.Where))
	add(o.RankTopK > 0, pushmesh.WithRankTopK(o.RankTopK))
	add(o.NoEcho, pushmesh.WithoutEcho())
	add(o.SkipLast, pushmesh.WithoutLast())
	add(o.Window > 0, pushmesh.WithWindow(uint32(o.Window)))
	return all
}

func (d *driver) handler(o *order) pushmesh.Handler {
	return func(ctx context.Context, m *pushmesh.Delivery) error {
		said := func() {
			d.tell("message", tell{
				"name": o.Name, "topic": m.Topic, "seq": m.Seq, "epoch": m.Epoch, "payload": string(m.Payload), "headers": m.Headers,
				"attempt": m.Attempt, "from": m.From, "score": m.Score, "unranked": m.Unranked,
			})
		}
		var answer chan error
		if o.Hold {
			answer = d.hold(o, m)
		}
		switch {
		case d.fault == "lose" && m.Seq == 2:
		case d.fault == "double" && m.Seq == 2:
			said()
			said()
		default:
			said()
		}
		if !o.Hold || o.Manual {
			return nil
		}
		select {
		case err := <-answer:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// heldMessage is one whose handler waits for an answer.
type heldMessage struct {
	m      *pushmesh.Delivery
	manual bool // it is ACKed by a call, not by the handler's end
	done   chan error
}

// hold is where the answer about a message will come.
func (d *driver) hold(o *order, m *pushmesh.Delivery) chan error {
	d.mu.Lock()
	defer d.mu.Unlock()
	answer := make(chan error, 1)
	d.held[heldKey(o.Name, m.Topic, m.Seq)] = heldMessage{m, o.Manual, answer}
	return answer
}

func heldKey(name, topic string, seq uint64) string { return fmt.Sprint(name, " ", topic, " ", seq) }

// answer ends a handler.
func (d *driver) answer(o *order) {
	h := d.held[heldKey(o.Name, o.Topic, uint64(o.Seq))]
	var err error
	switch {
	case o.With == "nack":
		err = pushmesh.NackAfter(ms(o.AfterMs), errors.New("refused: "+o.Reason))
	case h.manual:
		err = h.m.Ack()
	}
	h.done <- err
}

func (d *driver) publish(o *order) {
	client, ctx := d.client, d.cancellable(o.Name)
	go func() {
		r, err := client.Publish(ctx, pushmesh.ClientMessage{Topic: o.Topic, Payload: []byte(o.Payload), Headers: o.Headers, DedupeKey: o.DedupeKey})
		if err != nil {
			d.fail(o.Name, err)
			return
		}
		d.tell("published", tell{"name": o.Name, "seq": r.Seq, "epoch": r.Epoch, "duplicate": r.Duplicate})
	}()
}

func (d *driver) claim(ctx context.Context, client *pushmesh.Subscriber, o *order) {
	opts := []claim.Option{claim.OnPosition(func(at int) { d.tell("queued", tell{"name": o.Name, "position": at}) })}
	if o.TTLMs > 0 {
		opts = append(opts, claim.WithTTL(ms(o.TTLMs)))
	}
	if o.Priority > 0 {
		opts = append(opts, claim.WithPriority(o.Priority))
	}
	if o.NoWait {
		opts = append(opts, claim.WithoutWaiting())
	}
	c, err := claim.Join(ctx, client, o.Resource, opts...)
	ctx = context.Background() // the place stays
	if err != nil {
		d.fail(o.Name, err)
		return
	}
	d.mu.Lock()
	d.claims[o.Name] = c
	d.mu.Unlock()
	if c.Wait(ctx) == nil {
		d.tell("granted", tell{"name": o.Name, "token": fmt.Sprint(c.Token())})
	}
	<-c.Lost()
	if err := c.Err(); err != nil && !errors.Is(err, pushmesh.ErrClosed) {
		d.tell("lost", tell{"name": o.Name, "code": codeOf(err)})
	}
}

func (d *driver) watch(client *pushmesh.Subscriber, o *order) {
	members := func(all []presence.Member) (out []tell) {
		for _, m := range all {
			out = append(out, tell{"user": m.User, "state": string(m.State)})
		}
		return out
	}
	w, err := presence.Watch(context.Background(), client, o.Topic, func(c presence.Change) {
		d.tell("presence", tell{
			"name": o.Name, "topic": c.Topic, "all": c.All, "joined": members(c.Joined), "changed": members(c.Changed), "left": c.Left,
			"count": c.Count, "counts_only": c.CountsOnly,
		})
	})
	if err != nil {
		d.fail(o.Name, err)
		return
	}
	d.mu.Lock()
	d.watches[o.Name] = w
	d.mu.Unlock()
	<-w.Done()
	if err := w.Err(); err != nil && !errors.Is(err, pushmesh.ErrClosed) && client.Err() == nil {
		d.tell("ended", tell{"name": o.Name, "code": codeOf(err)})
	}
}
