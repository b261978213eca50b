package pushmesh

import (
	"errors"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/acks"
	"github.com/pushmesh/pushmesh/client/internal/ext"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// settle ACKs a message that every subscription concerned has had, or Nacks it where one of them
// refused it: then those that did not have it ACKed when it comes again. named says that its copy
// named its subscriptions.
func (s *Subscriber) settle(t *topicState, seq uint64, named bool, holders []holder) {
	var wanted bool
	var nack error
	through, epoch := true, uint64(0)
	for i := range holders {
		if h := &holders[i]; h.counts(s.link) {
			wanted, epoch = true, h.Epoch
			through = through && h.Settled(seq)
			if nack == nil {
				nack = h.nack
			}
		}
	}
	switch {
	case !wanted:
	case nack != nil && !named:
		s.nack(t, t.plainSub(), seq, nack)
	case !named:
		t.plain.Sub = t.plainSub()
		s.ack(&t.plain, epoch, seq, through)
	default:
		for i := range holders {
			switch h := &holders[i]; {
			case !h.counts(s.link):
			case h.nack != nil:
				s.nack(t, h.sub.request.GetId(), seq, h.nack)
			case nack == nil:
				s.ack(&h.acks, h.Epoch, seq, h.Settled(seq) && !h.sub.shared() && !h.sub.ranked())
			}
		}
	}
}

// nack asks for a message again. The ACKs before it go first.
func (s *Subscriber) nack(t *topicState, sub uint32, seq uint64, why error) {
	s.flushAcks()
	n := &wirev1.Nack{Topic: t.name, Sub: sub, Seq: seq, Reason: truncate(strings.ToValidUTF8(why.Error(), "\uFFFD"), 256)}
	var after *nackError
	if errors.As(why, &after) {
		n.DelayMs = ext.Milliseconds(after.after)
	}
	s.stats.Nacked++
	// too short to be refused
	_ = s.link.Put(wirev1.FrameType_FRAME_TYPE_NACK, n)
	s.flushIn(0)
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
