package pushmesh

import (
	"errors"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/acks"
	"github.com/pushmesh/pushmesh/client/internal/ext"
	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// settle ACKs a message that every subscription concerned has had, or Nacks it. l is the connection
// that it came over.
func (s *Subscriber) settle(t *topicState, d *Delivery, l *link.Conn, involved []*cursor, nack error) {
	var wanted bool
	through, epoch := true, uint64(0)
	for _, c := range involved {
		if c.sub.request.GetAck() {
			wanted, epoch = true, c.Epoch
			through = through && c.Settled(d.Seq)
		}
	}
	switch {
	case !wanted:
	case nack != nil:
		s.nack(t, d, l, nack)
	case len(d.subs) == 0:
		t.plain.Sub = t.plainSub()
		s.ack(&t.plain, epoch, d.Seq, through)
	default:
		for _, c := range involved {
			if c.sub.request.GetAck() {
				s.ack(&c.acks, c.Epoch, d.Seq, c.Settled(d.Seq) && !c.sub.shared() && !c.sub.ranked())
			}
		}
	}
}

// nack asks for a message again. The ACKs before it go first. What came over another connection
// comes again anyway.
func (s *Subscriber) nack(t *topicState, d *Delivery, l *link.Conn, why error) {
	if l == nil || l != s.link {
		return
	}
	s.flushAcks()
	n := &wirev1.Nack{Topic: t.name, Seq: d.Seq, Reason: truncate(strings.ToValidUTF8(why.Error(), "\uFFFD"), 256)}
	if n.Sub = t.plainSub(); len(d.subs) > 0 {
		n.Sub = d.subs[0]
	}
	var after *nackError
	if errors.As(why, &after) {
		n.DelayMs = ext.Milliseconds(after.after)
	}
	s.stats.Nacked++
	s.mu.Unlock()
	// a failed write closes the connection; the reader reports it
	_ = l.Send(wirev1.FrameType_FRAME_TYPE_NACK, n)
	s.mu.Lock()
}

// ack has seq of an epoch ACKed within AckDelay. through says that everything sent before it was
// dealt with too.
func (s *Subscriber) ack(r *acks.Run, epoch, seq uint64, through bool) {
	if r.Epoch != epoch {
		if r.Waits() {
			s.flushAcks() // they are of the log before
		}
		r.Epoch = epoch
	}
	if !s.acks.Add(r, seq, through) {
		return
	}
	s.acked++
	switch {
	case r.Full():
		s.flushAcks()
		s.flushIn(0)
	case !s.flushArmed:
		s.flushIn(s.cfg.AckDelay)
	}
}

// flushIn has flushTick called after d.
func (s *Subscriber) flushIn(d time.Duration) {
	s.flushArmed = true
	if s.flushTimer == nil {
		s.flushTimer = time.AfterFunc(d, s.flushTick)
		return
	}
	s.flushTimer.Reset(d)
}

func (s *Subscriber) flushTick() {
	s.mu.Lock()
	s.flushArmed = false
	s.flushAcks()
	l := s.link
	s.mu.Unlock()
	if l != nil {
		_ = l.Flush() // a failed write closes the connection; the reader reports it
	}
}

// flushAcks puts what waits into the link's buffer, which the caller or flushTick writes. Without a
// link it is forgotten: a new connection knows nothing of the old one's messages. Called with s.mu
// held.
func (s *Subscriber) flushAcks() {
	if l := s.link; l != nil && !s.acks.Empty() {
		l.Append(s.acks.Append)
	}
	s.acks.Clear()
}

// truncate cuts s to at most n bytes of whole runes.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}
