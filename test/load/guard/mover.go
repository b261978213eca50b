package guard

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// mover is a client of one topic that does as GoAway says: it waits, connects to the place that is
// named first, and goes on after the last message it had.
type mover struct {
	n     int
	topic string
	last  atomic.Uint64 // seq it had last
	moved atomic.Bool   // it is subscribed elsewhere
	gap   time.Duration // from GoAway to being subscribed again
	again int           // tries after the first
	holes int
	epoch uint64
	conn  net.Conn
	from  net.Addr
}

var errAway = errors.New("told to go away")

// connect is one try. Its place in 127.0.2.x keeps ports of one pair of addresses from running out.
func (m *mover) connect(ctx context.Context, addr string) (*bufio.Reader, error) {
	d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: m.from}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	m.conn = conn
	sub := &wirev1.Subscribe{Id: 1, Filter: m.topic}
	if m.epoch != 0 {
		sub.Start, sub.Seq, sub.Epoch = wirev1.Start_START_AFTER_SEQ, m.last.Load(), m.epoch
	}
	b, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: wire.Version, ClientId: fmt.Sprint("mover-", m.n), HeartbeatMs: swarm.Never})
	if err == nil {
		b, err = wire.Append(b, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, sub)
	}
	if err == nil {
		_, err = conn.Write(b)
	}
	r := bufio.NewReaderSize(conn, 512)
	for err == nil {
		var body []byte
		var t wirev1.FrameType
		if t, body, err = wire.Read(r, nil, wire.MaxBody); err != nil {
			break
		}
		switch t {
		case wirev1.FrameType_FRAME_TYPE_SUBSCRIBED:
			var s wirev1.Subscribed
			if err = proto.Unmarshal(body, &s); err != nil {
				break
			}
			if m.epoch == 0 {
				m.epoch = s.GetEpoch()
				m.last.Store(s.GetHead())
			}
			return r, nil
		case wirev1.FrameType_FRAME_TYPE_WELCOME:
		default:
			err = fmt.Errorf("got %v %q", t, body)
		}
	}
	return nil, errors.Join(err, conn.Close())
}

// read takes messages until GoAway, whose body it returns, or an end.
func (m *mover) read(r *bufio.Reader) (_ *wirev1.GoAway, err error) {
	defer try.Catch(&err)
	var buf []byte
	for {
		t, body := try.Get2(wire.Read(r, buf, wire.MaxBody))
		buf = body[:0]
		switch t {
		case wirev1.FrameType_FRAME_TYPE_MESSAGE:
			var msg wirev1.Message
			try.Do(proto.Unmarshal(body, &msg))
			if msg.GetSeq() != m.last.Load()+1 {
				m.holes++
			}
			m.last.Store(msg.GetSeq())
		case wirev1.FrameType_FRAME_TYPE_GO_AWAY:
			var g wirev1.GoAway
			return &g, proto.Unmarshal(body, &g)
		default:
			return nil, fmt.Errorf("got %v %q", t, body)
		}
	}
}

// live moves once, and stays where it went until ctx ends.
func (m *mover) live(ctx context.Context, r *bufio.Reader) error {
	g, err := m.read(r)
	_ = m.conn.Close()
	if err != nil {
		return err
	}
	if len(g.GetAddresses()) == 0 {
		return errors.New("GoAway names nobody")
	}
	told := time.Now()
	wait := time.NewTimer(time.Duration(g.GetReconnectAfterMs()) * time.Millisecond)
	select {
	case <-wait.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	for try := 0; ; try++ {
		if r, err = m.connect(ctx, g.GetAddresses()[try%len(g.GetAddresses())]); err == nil {
			break
		}
		if m.again++; m.again == 50 || ctx.Err() != nil {
			return err
		}
	}
	m.gap = time.Since(told)
	m.moved.Store(true)
	stop := context.AfterFunc(ctx, func() { _ = m.conn.Close() })
	defer stop()
	_, err = m.read(r)
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(errAway, err)
}

// movers connect to addr, some at a time.
func movers(ctx context.Context, addr string, n int, topic func(n int) string) ([]*mover, []*bufio.Reader, error) {
	all, readers, errs := make([]*mover, n), make([]*bufio.Reader, n), make([]error, n)
	var wg sync.WaitGroup
	slots := make(chan struct{}, 100)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			all[i] = &mover{n: i, topic: topic(i), from: &net.TCPAddr{IP: net.IPv4(127, 0, 2, byte(1+i/5000))}}
			readers[i], errs[i] = all[i].connect(ctx, addr)
		})
	}
	wg.Wait()
	return all, readers, errors.Join(errs...)
}
