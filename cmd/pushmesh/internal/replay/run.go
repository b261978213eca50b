package replay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/internal/topic"
)

// Options of a replay. Zero values mean the default given.
type Options struct {
	Edges   []string // addresses that the subscribers are spread over; each knows the others
	Routers []string // likewise for the publishers
	// RouterOptions are how routers are reached; none: without TLS.
	RouterOptions []grpc.DialOption
	// Speed times real pace; 0: flat out.
	Speed float64
	// MaxConnections at the same time, 8,000.
	MaxConnections int
	// Ahead is how many deliveries may be outstanding before the publisher waits, 50,000.
	Ahead int
	// Window is the receive window of each subscriber; 0: the edge's default.
	Window uint32
	// Namespace of the topics, "room": a durable one.
	Namespace string
	// Prefix of the rooms' names in topics; empty: one of this run alone.
	Prefix string
	// Timeout of the whole replay; 0: none.
	Timeout time.Duration
	// Stall is how long nothing may move before the replay gives up, 60 s.
	Stall time.Duration
	// DialEdge makes the subscribers' connections; nil: without TLS.
	DialEdge func(ctx context.Context, addr string) (net.Conn, error)
	// Token of the subscribers, who are one user then; it is called for each connection. Nil: none.
	Token func(context.Context) (string, error)
	// Out takes a line every second, and one for everything worth knowing.
	Out io.Writer

	// of producers; tests replace it
	dial func(ctx context.Context, addrs []string) (producer, error)
}

// Why a replay ended early.
var (
	ErrStalled = errors.New("nothing moved for too long")
	ErrTimeout = errors.New("the replay's time is over")
)

type player struct {
	opts     Options
	script   *Script
	run      uint64
	topics   []string
	meter    *meter
	producer []producer
	began    time.Time
	tally    Tally
	users    int // of all waves begun

	ownTopics bool   // nobody else publishes there
	extra     uint64 // deliveries of messages that the script does not have
}

// Run plays script. The Result is valid with an error too: the error says why it ended early or
// could not go on.
func Run(ctx context.Context, script *Script, opts Options) (Result, error) {
	p, err := newPlayer(script, opts)
	if err != nil {
		return Result{}, err
	}
	waves, err := script.waves(p.opts.MaxConnections)
	if err != nil {
		return Result{}, err
	}
	p.say("%d rooms, %d users, %d messages, expected=%d deliveries, in %d wave(s); topics %s …",
		len(script.Rooms), users(waves), len(script.Says), script.Expected(), len(waves), p.topics[0])
	err = p.play(ctx, waves)
	return p.result(), err
}

func newPlayer(script *Script, opts Options) (*player, error) {
	id := uuid.New()
	p := &player{opts: opts, script: script, run: binary.BigEndian.Uint64(id[:8]), meter: newMeter()}
	o := &p.opts
	o.MaxConnections = orDefault(o.MaxConnections, 8000)
	o.Ahead = orDefault(o.Ahead, 50_000)
	o.Stall = orDefault(o.Stall, time.Minute)
	o.Namespace = orDefault(o.Namespace, "room")
	if len(o.RouterOptions) == 0 {
		o.RouterOptions = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	if o.DialEdge == nil {
		o.DialEdge = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}
	}
	if o.dial == nil {
		o.dial = o.newProducer
	}
	if o.Prefix == "" {
		p.ownTopics = true
		o.Prefix = fmt.Sprintf("%08x-", uint32(p.run))
	}
	if len(o.Edges) == 0 || len(o.Routers) == 0 {
		return nil, errors.New("a replay needs an edge and a router")
	}
	for _, r := range script.Rooms {
		t := o.Namespace + "/" + o.Prefix + r.Name + "/chat"
		if err := topic.Check(t); err != nil {
			return nil, fmt.Errorf("topic %q: %w", t, err)
		}
		p.topics = append(p.topics, t)
	}
	return p, nil
}

func orDefault[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}

func (p *player) play(ctx context.Context, waves []wave) error {
	if p.opts.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, p.opts.Timeout, ErrTimeout)
		defer cancel()
	}
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	if err := p.openProducers(ctx); err != nil {
		return err
	}
	p.began = time.Now()
	for i := range waves {
		if err := p.playWave(ctx, &waves[i], i+1, len(waves)); err != nil {
			return errors.Join(err, p.closeProducers())
		}
	}
	return p.closeProducers()
}

func (p *player) result() Result {
	h := p.meter.latency()
	r := Result{
		Expected: p.script.Expected(), Tally: p.tally, Published: p.meter.published.Load(),
		Acked: p.meter.acked.Load(), Reconnects: p.meter.reconnects.Load(),
		P50: time.Duration(h.ValueAtQuantile(50)) * time.Microsecond,
		P99: time.Duration(h.ValueAtQuantile(99)) * time.Microsecond,
	}
	if !p.began.IsZero() {
		r.Took = time.Since(p.began)
	}
	r.Missing = r.Expected - r.Delivered // rooms never begun are missing too
	return r
}

func (p *player) say(format string, args ...any) {
	if p.opts.Out != nil {
		fmt.Fprintf(p.opts.Out, format+"\n", args...)
	}
}

func users(waves []wave) int {
	n := 0
	for _, w := range waves {
		n += w.users
	}
	return n
}
