package pushmesh

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/acks"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// settle ACKs a message that every subscription concerned has had, or Nacks it.
func (s *Subscriber) settle(t *topicState, it item) {
	var wanted bool
	var nack error
	d, through, epoch := it.d, true, uint64(0)
	s.involved = slices.DeleteFunc(s.involved, (*cursor).renewed)
	for _, c := range s.involved {
		if !c.sub.request.GetAck() {
			continue
		}
		wanted, epoch = true, c.Epoch
		through = through && c.Owed.Empty()
		if c.nack != nil {
			nack, c.nack = c.nack, nil
		}
	}
	switch {
	case !wanted:
	case nack != nil:
		s.nack(t, it, nack)
	case len(d.subs) == 0:
		t.plain.Epoch, t.plain.Sub = epoch, t.plainSub()
		s.ack(&t.plain, d.Seq, through)
	default:
		for _, c := range s.involved {
			if c.sub.request.GetAck() {
				c.acks.Epoch = c.Epoch
				s.ack(&c.acks, d.Seq, c.Owed.Empty() && !c.sub.shared() && !c.sub.ranked())
			}
		}
	}
}

// nack asks for a message again. The ACKs before it go first. What came over another connection
// comes again anyway.
func (s *Subscriber) nack(t *topicState, it item, why error) {
	l, d := s.link, it.d
	if l == nil || l != it.link {
		return
	}
	s.flushAcks()
	n := &wirev1.Nack{Topic: t.name, Seq: d.Seq, Reason: truncate(strings.ToValidUTF8(why.Error(), "\uFFFD"), 256)}
	if n.Sub = t.plainSub(); len(d.subs) > 0 {
		n.Sub = d.subs[0]
	}
	var after *nackError
	if errors.As(why, &after) {
		n.DelayMs = milliseconds(after.after)
	}
	s.stats.Nacked++
	s.mu.Unlock()
	// a failed write closes the connection; the reader reports it
	_ = l.Send(wirev1.FrameType_FRAME_TYPE_NACK, n)
	s.mu.Lock()
}

// ack has seq of the run ACKed within AckDelay. through says that everything sent before it was
// dealt with too.
func (s *Subscriber) ack(r *acks.Run, seq uint64, through bool) {
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
