package replay

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// frames takes one frame of the connection; type 0 ends what one read brought: then everything got
// is ACKed at once.
func (s *subscriber) frames(t wirev1.FrameType, body []byte) error {
	switch t {
	case 0:
		return s.settle()
	case wirev1.FrameType_FRAME_TYPE_MESSAGE:
		return s.message(body)
	case wirev1.FrameType_FRAME_TYPE_PROGRESS:
		var p wirev1.Progress
		if err := proto.Unmarshal(body, &p); err != nil {
			return fmt.Errorf("a Progress frame: %w", err)
		}
		s.check.Skip(p.GetEpoch(), p.GetTo())
		return nil
	}
	return refusal(t, body)
}

func (s *subscriber) message(body []byte) error {
	seq, payload, err := scanMessage(body)
	if err != nil {
		return err
	}
	s.unacked++
	index := -1
	m, ok := readMark(payload)
	if ok && m.run == s.fleet.run && int(m.room) == s.room {
		index = int(m.index)
	}
	if s.check.Got(seq, index) {
		s.sent = append(s.sent, m.sent)
	}
	return nil
}

// settle ends what one read brought.
func (s *subscriber) settle() error {
	s.heard.Store(time.Now().UnixNano())
	if s.unacked == 0 {
		return nil
	}
	s.count()
	epoch, seq := s.check.Position()
	s.out = appendAck(s.out[:0], s.topic, epoch, seq)
	if _, err := (*s.conn.Load()).Write(s.out); err != nil {
		return fmt.Errorf("ack: %w", err)
	}
	s.fleet.meter.acked.Add(s.unacked)
	s.unacked = 0
	return nil
}

// count tells the meter what came since the last call.
func (s *subscriber) count() {
	s.fleet.meter.deliveries(s.n, time.Now().UnixNano(), s.sent)
	s.sent = s.sent[:0]
	if d := s.check.Duplicate - s.counted; d > 0 {
		s.fleet.meter.duplicate.Add(d)
		s.counted += d
		s.fleet.meter.move()
	}
}
