package guard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/load/peer"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// mover is a client of one topic that does as GoAway says: it waits, connects to the place that is
// named first, and goes on after the last message it had.
type mover struct {
	n     int
	topic string
	last  atomic.Uint64 // seq it had last
	moved atomic.Bool   // it is subscribed elsewhere; in an upgrade: it is subscribed
	gap   time.Duration // from GoAway to being subscribed again
	again int           // tries after the first
	holes int
	epoch uint64
	conn  *peer.Conn
	from  net.Addr

	// Of an upgrade: knows is where it may go where GoAway names nobody, timed has it time what was
	// published after its last subscription; gaps are one for each time that it moved.
	knows []string
	timed bool
	since time.Time
	took  []delivery
	gaps  []time.Duration
}

const (
	// pause is how long a client that was refused waits before it tries again, giveUp how long
	// after GoAway it does.
	pause  = 50 * time.Millisecond
	giveUp = 30 * time.Second
)

var errAway = errors.New("told to go away")

// connect is one try. Its place in 127.0.2.x keeps ports of one pair of addresses from running out.
func (m *mover) connect(ctx context.Context, addr string) (err error) {
	defer try.Catch(&err)
	d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: m.from}
	conn := try.Get(d.DialContext(ctx, "tcp", addr))
	there := false
	defer func() {
		if !there {
			_ = conn.Close()
		}
	}()
	m.conn = try.Get(peer.Greet(conn, fmt.Sprint("mover-", m.n)))
	sub := &wirev1.Subscribe{Id: 1, Filter: m.topic}
	if m.epoch != 0 {
		sub.Start, sub.Seq, sub.Epoch = wirev1.Start_START_AFTER_SEQ, m.last.Load(), m.epoch
	}
	try.Do(m.conn.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, sub))
	var s wirev1.Subscribed
	try.Do(m.conn.Await(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, &s))
	if m.epoch == 0 {
		m.epoch = s.GetEpoch()
		m.last.Store(s.GetHead())
	}
	there, m.since = true, time.Now()
	return nil
}

// read takes messages until GoAway, whose body it returns, or an end.
func (m *mover) read() (_ *wirev1.GoAway, err error) {
	defer try.Catch(&err)
	for {
		t, body := try.Get2(m.conn.Next())
		switch t {
		case wirev1.FrameType_FRAME_TYPE_MESSAGE:
			var msg wirev1.Message
			try.Do(proto.Unmarshal(body, &msg))
			if msg.GetSeq() != m.last.Load()+1 {
				m.holes++
			}
			m.last.Store(msg.GetSeq())
			if at, ok := publisher.Stamped(msg.GetPayload()); ok && m.timed && at.After(m.since) {
				m.took = append(m.took, delivery{time.Now(), time.Since(at)})
			}
		case wirev1.FrameType_FRAME_TYPE_GO_AWAY:
			var g wirev1.GoAway
			return &g, proto.Unmarshal(body, &g)
		default:
			return nil, fmt.Errorf("got %v %q", t, body)
		}
	}
}

// live moves once, and stays where it went until ctx ends.
func (m *mover) live(ctx context.Context) error {
	g, err := m.read()
	if err != nil {
		_ = m.conn.Close()
		return err
	}
	if err := m.move(ctx, g); err != nil {
		return err
	}
	m.moved.Store(true)
	stop := context.AfterFunc(ctx, func() { _ = m.conn.Close() })
	defer stop()
	_, err = m.read()
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(errAway, err)
}

// move does as GoAway says.
func (m *mover) move(ctx context.Context, g *wirev1.GoAway) (err error) {
	_ = m.conn.Close()
	addrs := g.GetAddresses()
	if len(addrs) == 0 {
		addrs = m.knows
	}
	if len(addrs) == 0 {
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
		if err = m.connect(ctx, addrs[try%len(addrs)]); err == nil {
			break
		}
		if m.again++; time.Since(told) > giveUp || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m.gap = time.Since(told)
	return nil
}

// movers from first to the one before end connect to addr, some at a time.
func movers(ctx context.Context, addr string, first, end int, topic func(n int) string) ([]*mover, error) {
	all := make([]*mover, end-first)
	err := suite.Each(len(all), 100, func(_, i int) error {
		n := first + i
		all[i] = &mover{n: n, topic: topic(n), from: &net.TCPAddr{IP: net.IPv4(127, 0, 2, byte(1+n/5000))}}
		return all[i].connect(ctx, addr)
	})
	return all, err
}
