package sendq

import "github.com/pushmesh/pushmesh/proto/gen/wirev1"

// Drop takes the i-th item off, which must not have begun. Its place stays, dead, so that others
// keep theirs, until Compact or Tidy.
func (q *Queue) Drop(i uint32) {
	it := q.s.at(i)
	q.s.account(it, -1)
	q.s.clear(it)
}

// DropFirst takes the first message of the i-th item off, which must not have begun.
func (q *Queue) DropFirst(i uint32) {
	if it := q.s.at(i); it.count > 1 {
		q.s.trim(it)
		return
	}
	q.Drop(i)
}

// NoGap stands for no place.
const NoGap = ^uint32(0)

// DropFirstInto makes the first message of the i-th item part of the gap at a place, or with NoGap
// a gap of its own, and gives the place of that. frame is what the gap says from now on.
func (q *Queue) DropFirstInto(i, gap uint32, frame []byte, why wirev1.Code) uint32 {
	s := q.s
	it := s.at(i)
	switch {
	case gap != NoGap:
		q.DropFirst(i)
	case it.count > 1:
		q.Split(i)
		s.makeGap(i, why)
		gap = i
	default:
		s.makeGap(i, why)
		gap = i
	}
	s.setFrame(gap, frame)
	return gap
}

// DropInto is DropFirstInto for all messages of the item.
func (q *Queue) DropInto(i, gap uint32, frame []byte, why wirev1.Code) uint32 {
	if gap != NoGap {
		q.Drop(i)
	} else {
		q.s.makeGap(i, why)
		gap = i
	}
	q.s.setFrame(gap, frame)
	return gap
}

// makeGap puts a gap in the place of messages.
func (s *state) makeGap(i uint32, why wirev1.Code) {
	it := s.at(i)
	s.account(it, -1)
	*it = Item{kind: Gap, stream: it.stream, extra: it.message.Seq, rank: it.rank, attempt: uint16(why)}
}

func (s *state) setFrame(gap uint32, frame []byte) {
	g := s.at(gap)
	s.account(g, -1)
	g.bytes = frame
	s.account(g, 1)
}

// Detach parts the i-th item, which has begun, from its stream: its bytes go on alone.
func (q *Queue) Detach(i uint32) {
	it := q.s.at(i)
	if it.kind == Message || it.kind == Rest {
		it.stream.queued -= it.count
	}
	it.stream = nil
}

// DropSubscription drops the messages that are of no stream and addressed to a subscription. The
// queue may be empty.
func (q *Queue) DropSubscription(id uint32) {
	s := q.s
	for i := range s.n {
		if it := s.at(i); it.kind == Message && it.stream == nil && it.sub == id && !s.begun(i) {
			q.Drop(i)
		}
	}
	q.Compact()
}

// DropAll takes items off, at most so many, begun ones too. The queue may be empty.
func (q *Queue) DropAll(most int) {
	for ; q.s.n > 0 && most > 0; most-- {
		q.s.account(q.s.at(0), -1)
		q.pop()
	}
}

// KeepAnswers drops all but the edge's own frames and what has begun. The queue may be empty.
func (q *Queue) KeepAnswers() {
	s := q.s
	if s.n > 0 {
		s.shared.walked(s.n)
	}
	for i := range s.n {
		if it := s.at(i); it.kind != Dead && !s.begun(i) && it.kind != Answer {
			q.Drop(i)
		}
	}
	q.Compact()
}

// DropOldestEphemeral drops the oldest message that no log has and reports whether there was one.
// The queue may be empty.
func (q *Queue) DropOldestEphemeral() bool {
	if q.s.n == 0 {
		return false
	}
	i, ok := q.s.oldestEphemeral()
	if !ok {
		return false
	}
	q.DropFirst(i)
	q.Tidy()
	return true
}

// DropEphemeral drops messages that no log has, the oldest first, until the queue holds no more
// than goal bytes, and gives how many that were.
func (q *Queue) DropEphemeral(goal int) (dropped uint64) {
	s := q.s
	for i := uint32(0); i < s.n && s.held > goal; i++ {
		if it := s.at(i); it.kind == Message && it.message.Seq == 0 && !s.begun(i) {
			dropped += uint64(it.count)
			q.Drop(i)
		}
	}
	return dropped
}

// Replace puts a message in the place of one of its topic that is for the same stream or
// subscription and has not begun, and gives how many messages it has replaced; 0: there was none.
// The queue may be empty.
func (q *Queue) Replace(by *Item) (replaced uint32) {
	s := q.s
	for i := range s.n {
		it := s.at(i)
		if it.kind != Message || it.stream != by.stream || it.sub != by.sub || s.begun(i) || it.message.Topic != by.message.Topic {
			continue
		}
		replaced = it.count
		s.account(it, -1)
		it.message, it.bytes, it.count, it.extra = by.message, by.bytes, 1, by.extra
		s.account(it, 1)
		s.shared.walked(i)
		return replaced
	}
	if s.n > 0 {
		s.shared.walked(s.n)
	}
	return 0
}
