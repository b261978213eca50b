package failures

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// beat is the subscribers' heartbeat: an edge that hangs is left after 2.5 of them.
const beat = time.Second

// readyWithin bounds how long a subscriber may take to subscribe for the first time.
const readyWithin = 2 * time.Minute

// What every subscriber wants.
const lives = live + "/failures/+"

var durables = []string{builtin + "/failures/+", durable + "/failures/+"}

// follow subscribes with the SDK: a durable session that begins at the edge given first, and goes
// to any other afterwards. It returns once the mesh has promised to deliver.
func follow(ctx context.Context, d *diary, edges []string, first string) (*pushmesh.Subscriber, error) {
	var dials atomic.Int32
	s, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{
		Addrs: edges, ClientID: d.name, Session: "failures", ReceiveWindow: 4096, Heartbeat: beat, MaxBackoff: time.Second, DialTimeout: 3 * time.Second,
		OnConnect:    func(c pushmesh.Connection) { d.connected(c.Edge) },
		OnDisconnect: func(error) { d.connected("") },
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			if dials.Add(1) == 1 {
				addr = first
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	note := func(_ context.Context, m *pushmesh.Delivery) error {
		d.note(arrival{id: identify(m.Payload), topic: m.Topic, seq: m.Seq, attempt: m.Attempt})
		return nil
	}
	for _, filter := range durables {
		if err == nil {
			_, err = s.Subscribe(ctx, filter, note, pushmesh.WithAck(), pushmesh.FromSession())
		}
	}
	if err == nil {
		_, err = s.Subscribe(ctx, lives, note)
	}
	return s, errors.Join(err)
}

// plain is a client that speaks the wire protocol itself: it knows several edges, goes to the next
// one when its connection ends or falls silent, and resumes by positions that it remembers.
type plain struct {
	*diary
	edges  []string
	topics []string // durable ones
	at     int
	ready  chan struct{} // closed when it was subscribed for the first time

	epochs map[string]uint64
	high   map[string]uint64 // highest seq seen or skipped
}

func newPlain(d *diary, edges, topics []string, first int) *plain {
	return &plain{diary: d, edges: edges, topics: topics, at: first, ready: make(chan struct{}), epochs: map[string]uint64{}, high: map[string]uint64{}}
}

func (p *plain) run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = p.connection(ctx, p.edges[p.at%len(p.edges)]) // why it ended does not matter
		p.connected("")
		p.at++
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (p *plain) connection(ctx context.Context, addr string) error {
	conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	r := bufio.NewReader(conn)
	if err := p.introduce(conn); err != nil {
		return err
	}
	next := time.Now()
	answered := 0
	for {
		if now := time.Now(); !now.Before(next) {
			next = now.Add(beat)
			if err := say(conn, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 1}); err != nil {
				return err
			}
		}
		if err := conn.SetReadDeadline(time.Now().Add(beat * 5 / 2)); err != nil {
			return err
		}
		ft, body, err := wire.Read(r, nil, wire.MaxBody)
		if err != nil {
			return err // 2.5 heartbeats without a frame, not even a Pong: the edge hangs
		}
		m, err := wireclient.Frame(ft, body)
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *wirev1.Welcome:
			p.connected(m.GetEdge())
		case *wirev1.Subscribed:
			p.subscribed(m)
			if answered++; answered == len(p.topics)+1 {
				p.once()
			}
		case *wirev1.Message:
			p.message(m)
		case *wirev1.Progress:
			p.progress(m)
		case *wirev1.Error:
			return fmt.Errorf("refused: %v", m)
		case *wirev1.GoAway:
			return errors.New("go away")
		}
	}
}

func (p *plain) once() {
	select {
	case <-p.ready:
	default:
		close(p.ready)
	}
}

func say(conn net.Conn, ft wirev1.FrameType, m proto.Message) error {
	b, err := wire.Append(nil, ft, m)
	if err != nil {
		return err
	}
	_, err = conn.Write(b)
	return err
}

// introduce says Hello and subscribes, to each durable topic where it was.
func (p *plain) introduce(conn net.Conn) error {
	err := say(conn, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: wire.Version, ClientId: p.name, HeartbeatMs: uint32(beat.Milliseconds())})
	for i, topic := range p.topics {
		pos := &wirev1.Position{Topic: topic, Epoch: p.epochs[topic], Seq: p.high[topic]}
		err = errors.Join(err, say(conn, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: uint32(i) + 1, Filter: topic, Positions: []*wirev1.Position{pos}}))
	}
	return errors.Join(err, say(conn, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: uint32(len(p.topics)) + 1, Filter: lives}))
}

func (p *plain) subscribed(m *wirev1.Subscribed) {
	if n := int(m.GetId()); n <= len(p.topics) && m.GetEpoch() != 0 {
		p.epochs[p.topics[n-1]] = m.GetEpoch()
	}
	for _, pos := range m.GetPositions() {
		p.epochs[pos.GetTopic()] = pos.GetEpoch()
	}
}

func (p *plain) progress(m *wirev1.Progress) {
	if m.GetEpoch() != 0 {
		p.epochs[m.GetTopic()] = m.GetEpoch()
	}
	p.high[m.GetTopic()] = max(p.high[m.GetTopic()], m.GetTo())
}

func (p *plain) message(m *wirev1.Message) {
	p.note(arrival{id: identify(m.GetPayload()), topic: m.GetTopic(), seq: m.GetSeq(), attempt: m.GetAttempt()})
	p.high[m.GetTopic()] = max(p.high[m.GetTopic()], m.GetSeq())
}
