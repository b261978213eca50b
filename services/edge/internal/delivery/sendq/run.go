package sendq

import "github.com/pushmesh/pushmesh/services/edge/internal/exchange"

// Run is messages of one topic that follow each other, and whose frames lie side by side in memory:
// queued as one item, and sent as one piece. An item that has begun to leave never holds more than
// one message.
type Run struct {
	first *exchange.Message
	bytes []byte // their frames
	count uint32
}

// Runs appends the runs that messages make.
func Runs(dst []Run, messages []*exchange.Message) []Run {
	for i, m := range messages {
		if i > 0 && messages[i-1].Next == m && messages[i-1].Priority == m.Priority && follows(dst[len(dst)-1].bytes, m.Frame) {
			r := &dst[len(dst)-1]
			r.bytes, r.count = r.bytes[:len(r.bytes)+len(m.Frame)], r.count+1
			continue
		}
		dst = append(dst, Run{m, m.Frame, 1})
	}
	return dst
}

// Item of the run, for a stream; nil: for none.
func (r *Run) Item(s *Stream) Item {
	return Item{kind: Message, message: r.first, stream: s, bytes: r.bytes, count: r.count}
}

// follows reports whether frame lies right behind b in the memory that b was cut from.
func follows(b, frame []byte) bool {
	return cap(b) > len(b) && len(frame) > 0 && &b[:len(b)+1][len(b)] == &frame[0]
}

// extend makes it part of the item before at; false where the two are no run.
func (s *state) extend(at uint32, it *Item) bool {
	if at == 0 || it.kind != Message {
		return false
	}
	last := s.at(at - 1)
	if last.kind != Message || last.stream != it.stream || !follows(last.bytes, it.bytes) || last.message.Priority != it.message.Priority || s.begun(at-1) || last.Again() || it.Again() || !last.Plain() || !it.Plain() {
		return false
	}
	last.bytes, last.count = last.bytes[:len(last.bytes)+len(it.bytes)], last.count+it.count
	return true
}

// trim takes the first message off a run of several.
func (s *state) trim(it *Item) (first Item) {
	first = *it
	first.bytes, first.count = it.message.Frame, 1
	s.account(&first, -1)
	it.message, it.bytes, it.count = it.message.Next, it.bytes[len(first.bytes):], it.count-1
	return first
}

// Split makes the first message of the i-th item, which is a run of several, an item of its own:
// the i-th.
func (q *Queue) Split(i uint32) {
	s := q.s
	if int(s.n) == len(s.items) {
		s.grow()
	}
	s.head = (s.head - 1) & uint32(len(s.items)-1)
	s.n++
	for j := range i {
		*s.at(j) = *s.at(j + 1)
	}
	first, rest := s.at(i), s.at(i+1)
	*first = *rest
	first.bytes, first.count = first.message.Frame, 1
	rest.message, rest.bytes, rest.count = rest.message.Next, rest.bytes[len(first.bytes):], rest.count-1
}
