package sendq

// Priority orders between the topics of one queue: an item is queued as if it had come
// PriorityStep sooner for each level. That is ageing without a clock to look at, since what waits
// is overtaken only by what comes within a time that is fixed. Nothing overtakes items of its own
// topic, the edge's own frames, or what has begun to leave; so a queue whose messages have one
// priority is in the order of arrival, and costs one comparison an item.

// PriorityStep is what a level of priority is worth, in milliseconds.
const PriorityStep = 100

// lead is what a priority is worth, in milliseconds.
func lead(priority uint8) uint32 { return uint32(priority) * PriorityStep }

// place ranks an item (a gap has its lead as the rank) and finds where it belongs: behind
// everything that came before it, but for less urgent items of other topics at the end of the
// queue.
func (s *state) place(it *Item) (at uint32) {
	at = s.n
	switch it.kind {
	case Answer:
		return at
	case Message:
		it.rank = lead(it.message.Priority)
		s.expiresBy(it.message.ExpiresAt)
	}
	it.rank = s.shared.ms - it.rank
	i := s.n
	for ; i > 0; i-- {
		x := s.at(i - 1)
		if x.kind == Dead {
			continue
		}
		if x.kind == Answer || !later(x.rank, it.rank) || s.begun(i-1) {
			break
		}
		if sameTopic(x, it) {
			it.rank = x.rank // others may overtake the two
			break
		}
		at = i - 1
	}
	if at < s.n {
		s.reordered = true
		s.shared.walked(s.n - i)
	}
	return at
}

// later compares ranks, which wrap around.
func later(a, b uint32) bool { return int32(a-b) > 0 }

// oldestEphemeral finds the message that no log has which came first and has not begun to leave. Of
// those that came at once it is the least urgent.
func (s *state) oldestEphemeral() (oldest uint32, found bool) {
	var first uint32
	var priority uint8
	for i := range s.n {
		it := s.at(i)
		if it.kind != Message || it.message.Seq != 0 || s.begun(i) {
			continue
		}
		came := it.rank + lead(it.message.Priority)
		if !found || later(first, came) || first == came && it.message.Priority < priority {
			oldest, first, priority, found = i, came, it.message.Priority, true
		}
		if !s.reordered {
			return oldest, true
		}
	}
	s.shared.walked(s.n)
	return oldest, found
}
