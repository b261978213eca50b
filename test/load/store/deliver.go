package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/load/firehose"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	deliveryRate = 25_000 // messages a second
	frameTopics  = 16     // messages of a frame in an open loop
)

// deliver publishes at a fixed rate to topics with a subscriber each, who ACKs; every message is
// timed from when it was due to be published until the subscriber has written its ACK.
func (b *bench) deliver(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.mesh(ctx, 1))
	defer func() { err = errors.Join(err, m.end()) }()
	all := names("room", topics)
	subs := try.Get(subscribeAll(ctx, m, all))
	f := &flood{}
	for i := 0; i < topics; i += frameTopics {
		h := try.Get(firehose.Dial(ctx, firehose.Config{
			Addr: m.Router.Addr, Topics: all[i : i+frameTopics], Size: payload, Window: 1024, Rate: deliveryRate / topics,
			Stamp: publisher.Stamp,
		}))
		f.hoses = append(f.hoses, h)
	}
	w := try.Get(b.UsingMesh(m.Mesh))
	c := b.checkpointIn(ctx, b.Span/2)
	began := time.Now()
	answers, err := f.run(ctx, b.Span)
	checkpoint, faultErr := c.end()
	try.Do(errors.Join(err, faultErr))
	span := time.Since(began)
	took := try.Get(collect(ctx, subs, f.answered()))
	used := try.Get(w.Each(f.answered()))
	fsync := try.Get(fsyncs(string(b.Dir), 300))
	b.Add(table.AtMost("publish to ACKed delivery at 25,000/s across a checkpoint, p99", table.Quantile(took, .99), "ms", 5,
		fmt.Sprintf("%.0f s, %.0f/s, %d refused; p50 %s, p99.9 %s; answers p99 %s; checkpoint took %s; the disk's fdatasync p99 %s after the load; %s", span.Seconds(),
			float64(len(took))/span.Seconds(), f.refused(), ms(took, .5), ms(took, .999), ms(answers, .99), checkpoint, ms(fsync, .99), used)))
	return nil
}

// acker is a subscriber of one topic that ACKs what it has read, as much at once as came at once.
type acker struct {
	conn  net.Conn
	read  *bufio.Reader
	got   atomic.Int64
	ended chan struct{}

	mu   sync.Mutex
	came []arrival
	err  error
}

// arrival of a message, by its stamp, at the time its ACK was written.
type arrival struct{ stamp, at time.Time }

// subscribeAll has one for each topic; they end with the mesh at the latest.
func subscribeAll(ctx context.Context, m *mesh, all []string) (subs []*acker, err error) {
	defer try.Catch(&err)
	for _, topic := range all {
		subs = append(subs, try.Get(subscribe(ctx, m.Edges[0].Addr, topic)))
	}
	return subs, nil
}

func subscribe(ctx context.Context, edge, topic string) (_ *acker, err error) {
	defer try.Catch(&err)
	conn := try.Get((&net.Dialer{}).DialContext(ctx, "tcp", edge))
	a := &acker{conn: conn, read: bufio.NewReaderSize(conn, 64<<10), ended: make(chan struct{})}
	out, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: wire.Version, ClientId: "bench-" + topic, HeartbeatMs: 600_000, ReceiveWindow: 4096})
	if err == nil {
		out, err = wire.Append(out, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: topic, Ack: true})
	}
	if err == nil {
		_, err = conn.Write(out)
	}
	for err == nil {
		var kind wirev1.FrameType
		if kind, _, err = a.frame(); kind == wirev1.FrameType_FRAME_TYPE_SUBSCRIBED {
			go a.run(topic)
			return a, nil
		}
	}
	return nil, errors.Join(err, conn.Close())
}

// frame reads one; its body is valid until the next.
func (a *acker) frame() (_ wirev1.FrameType, _ []byte, err error) {
	defer try.Catch(&err)
	head := try.Get(a.read.Peek(wire.HeaderSize))
	n, kind, _ := wire.Header(head)
	whole, err := a.read.Peek(wire.HeaderSize + n) // frames here are shorter than the buffer
	if err != nil {
		return 0, nil, err
	}
	_, _ = a.read.Discard(len(whole)) // it is there
	body := whole[wire.HeaderSize:]
	if kind == wirev1.FrameType_FRAME_TYPE_ERROR || kind == wirev1.FrameType_FRAME_TYPE_GO_AWAY {
		return kind, nil, fmt.Errorf("got %v %q", kind, body)
	}
	return kind, body, nil
}

func (a *acker) run(topic string) {
	defer close(a.ended)
	err := a.serve(topic)
	a.mu.Lock()
	a.err = err
	a.mu.Unlock()
}

func (a *acker) serve(topic string) (err error) {
	defer try.Catch(&err)
	var published []time.Time
	var out []byte
	entry := &wirev1.Ack_Entry{Topic: topic, Through: true}
	ack := &wirev1.Ack{Entries: []*wirev1.Ack_Entry{entry}}
	last := uint64(0)
	for {
		kind, body := try.Get2(a.frame())
		if kind != wirev1.FrameType_FRAME_TYPE_MESSAGE {
			continue
		}
		m := try.Get(readMessage(body))
		stamp, ok := publisher.Stamped(m.payload)
		if !ok || m.attempt > 0 || m.seq != last+1 && last != 0 {
			return fmt.Errorf("message %d after %d, attempt %d", m.seq, last, m.attempt)
		}
		last = m.seq
		published = append(published, stamp)
		if a.read.Buffered() >= wire.HeaderSize {
			continue // more came with it
		}
		entry.Seq = last
		if out, err = wire.Append(out[:0], wirev1.FrameType_FRAME_TYPE_ACK, ack); err == nil {
			_, err = a.conn.Write(out)
		}
		if err != nil {
			return err
		}
		now := time.Now()
		a.mu.Lock()
		for _, at := range published {
			a.came = append(a.came, arrival{at, now})
		}
		a.mu.Unlock()
		a.got.Add(int64(len(published)))
		published = published[:0]
	}
}

// message is what matters here of an encoded one, whose bytes payload shares.
type message struct {
	seq, attempt uint64
	payload      []byte
}

// Numbers of fields of a Message.
const (
	fieldSeq     = 2
	fieldPayload = 3
	fieldAttempt = 7
)

// readMessage makes nothing: a subscriber's share of the machine is missing elsewhere.
func readMessage(b []byte) (m message, err error) {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return m, protowire.ParseError(n)
		}
		b = b[n:]
		switch {
		case num == fieldSeq && kind == protowire.VarintType:
			m.seq, n = protowire.ConsumeVarint(b)
		case num == fieldAttempt && kind == protowire.VarintType:
			m.attempt, n = protowire.ConsumeVarint(b)
		case num == fieldPayload && kind == protowire.BytesType:
			m.payload, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, kind, b)
		}
		if n < 0 {
			return m, protowire.ParseError(n)
		}
		b = b[n:]
	}
	return m, nil
}

// collect waits until every message was delivered and returns how long each took, sorted.
func collect(ctx context.Context, subs []*acker, want int64) (took []time.Duration, err error) {
	all, err := arrivals(ctx, subs, want)
	for _, a := range all {
		took = append(took, a.at.Sub(a.stamp))
	}
	slices.Sort(took)
	return took, err
}

// arrivals waits until that many messages were delivered, ends the subscribers and returns what
// came, subscriber by subscriber.
func arrivals(ctx context.Context, subs []*acker, want int64) (all []arrival, err error) {
	if err := await(ctx, subs, want); err != nil {
		return nil, err
	}
	for _, a := range subs {
		_ = a.conn.Close() // what it read is ACKed
		<-a.ended
		all = append(all, a.came...)
	}
	return all, nil
}

// await waits until that many messages were delivered.
func await(ctx context.Context, subs []*acker, want int64) error {
	return suite.Poll(ctx, 20*time.Second, func() (err error) {
		got := int64(0)
		for _, a := range subs {
			got += a.got.Load()
			a.mu.Lock()
			err = errors.Join(err, a.err)
			a.mu.Unlock()
		}
		if got >= want {
			return nil
		}
		return errors.Join(fmt.Errorf("%d of %d messages were delivered", got, want), err)
	})
}
