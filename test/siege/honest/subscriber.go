package honest

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/load/peer"
)

// again is how long a subscriber waits before it connects once more.
const again = 200 * time.Millisecond

// subscriber has an ephemeral topic and a durable one, of which it ACKs every message, and comes
// back where it was when its connection ends. One goroutine runs it.
type subscriber struct {
	crowd         *Crowd
	n             int
	live, durable string
	// had is the seq up to which it has everything.
	had   atomic.Uint64
	epoch uint64
	above map[uint64]bool // seqs that it has beyond had
	// lost is what it was told of durable messages that will not come.
	lost  atomic.Pointer[string]
	ready chan struct{} // closed once it was subscribed
	first sync.Once
	msg   wirev1.Message
}

func newSubscriber(c *Crowd, n int) *subscriber {
	return &subscriber{
		crowd: c, n: n, live: LiveTopic(n % c.cfg.Topics), durable: DurableTopic(n % c.cfg.Topics),
		above: map[uint64]bool{}, ready: make(chan struct{}),
	}
}

func (s *subscriber) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.connection(ctx)
		if ctx.Err() == nil && err != nil {
			s.crowd.ends.Add(1)
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
}

// connection is the life of one connection; it ends with an error.
func (s *subscriber) connection(ctx context.Context) error {
	c, err := peer.Dial(ctx, s.crowd.cfg.Edge, fmt.Sprintf("honest-%d", s.n))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	defer func() { _ = c.Close() }()
	sub := &wirev1.Subscribe{Id: 1, Filter: s.durable, Ack: true}
	if s.epoch != 0 {
		sub.Start, sub.Seq, sub.Epoch = wirev1.Start_START_AFTER_SEQ, s.had.Load(), s.epoch
	}
	if err := c.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, sub); err != nil {
		return err
	}
	if err := c.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 2, Filter: s.live}); err != nil {
		return err
	}
	for {
		ft, body, err := c.Next()
		if err == nil {
			err = s.frame(c, ft, body)
		}
		if err != nil {
			return err
		}
	}
}

func (s *subscriber) frame(c *peer.Conn, ft wirev1.FrameType, body []byte) error {
	switch ft {
	case wirev1.FrameType_FRAME_TYPE_MESSAGE:
		return s.message(c, body)
	case wirev1.FrameType_FRAME_TYPE_SUBSCRIBED:
		var m wirev1.Subscribed
		if err := proto.Unmarshal(body, &m); err != nil {
			return err
		}
		if m.GetId() == 2 {
			s.first.Do(func() { close(s.ready) })
		} else if s.epoch == 0 {
			s.had.Store(m.GetHead())
			s.epoch = m.GetEpoch()
		}
	case wirev1.FrameType_FRAME_TYPE_ERROR:
		var m wirev1.Error
		_ = proto.Unmarshal(body, &m) // it is only counted
		s.crowd.refused.Add(1)
		return fmt.Errorf("refused: %v", &m)
	case wirev1.FrameType_FRAME_TYPE_PROGRESS:
		var m wirev1.Progress
		_ = proto.Unmarshal(body, &m)
		if told := m.String(); m.GetTopic() == s.durable && m.GetCode() != wirev1.Code_CODE_EPOCH_CHANGED {
			s.lost.Store(&told)
		}
	}
	return nil
}

// message takes a message of which the payload begins with the time at which it was due.
func (s *subscriber) message(c *peer.Conn, body []byte) error {
	m := &s.msg
	if err := proto.Unmarshal(body, m); err != nil || !strings.HasPrefix(m.GetTopic(), "siege/live/") && m.GetTopic() != s.durable {
		s.crowd.garbled.Add(1)
		return nil
	}
	if len(m.GetPayload()) < stampSize {
		return nil // of an attacker
	}
	took := time.Since(time.Unix(0, int64(binary.BigEndian.Uint64(m.GetPayload()))))
	if m.GetSeq() == 0 {
		s.crowd.times[Live].add(took, 1)
		return nil
	}
	if s.take(m.GetSeq()) {
		s.crowd.times[Durable].add(took, 1)
	}
	return c.Send(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: m.GetTopic(), Seq: m.GetSeq()}}})
}

// take notes that a seq is there, and reports whether it is new.
func (s *subscriber) take(seq uint64) bool {
	had := s.had.Load()
	if seq <= had || s.above[seq] {
		return false
	}
	s.above[seq] = true
	for s.above[had+1] {
		had++
		delete(s.above, had)
	}
	s.had.Store(had)
	return true
}

// newcomer connects, subscribes to a durable topic and leaves, again and again.
func (c *Crowd) newcomer(ctx context.Context, n int) {
	tick := time.NewTicker(c.cfg.NewcomersEvery)
	defer tick.Stop()
	for at := 0; ; at++ {
		if err := c.visit(ctx, n, at); err != nil && ctx.Err() == nil {
			c.refused.Add(1)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// visit tries until it succeeds, as clients do: what was refused counts in the time.
func (c *Crowd) visit(ctx context.Context, n, at int) error {
	end := c.begin(Connect, time.Now())
	conn, err := c.enter(ctx, n)
	for err != nil && ctx.Err() == nil {
		c.refused.Add(1)
		<-time.After(again)
		conn, err = c.enter(ctx, n)
	}
	if end(err == nil); err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	began, there := time.Now(), false
	end = c.begin(Subscribe, began)
	defer func() { end(there) }()
	if err := conn.SetReadDeadline(began.Add(time.Minute)); err != nil {
		return err
	}
	if err := conn.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: DurableTopic(at % c.cfg.Topics)}); err != nil {
		return err
	}
	for {
		ft, body, err := conn.Next()
		if err != nil || ft == wirev1.FrameType_FRAME_TYPE_ERROR {
			c.times[Subscribe].add(time.Since(began)+again, 1) // it has to try again
			return fmt.Errorf("answer to Subscribe: %v %q %w", ft, body, err)
		}
		if ft == wirev1.FrameType_FRAME_TYPE_SUBSCRIBED {
			there = true
			return nil
		}
	}
}

func (c *Crowd) enter(ctx context.Context, n int) (*peer.Conn, error) {
	conn, err := (&net.Dialer{Timeout: time.Minute}).DialContext(ctx, "tcp", c.cfg.Edge)
	if err != nil {
		return nil, err
	}
	p, err := peer.Greet(conn, fmt.Sprintf("newcomer-%d", n))
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return p, nil
}
