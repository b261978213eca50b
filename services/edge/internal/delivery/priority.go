package delivery

// Priority orders between the topics of one queue: an item is queued as if it had come priorityStep
// sooner for each level. That is ageing without a clock to look at, since what waits is overtaken
// only by what comes within a time that is fixed. Nothing overtakes items of its own topic, the
// edge's own frames, or what has begun to leave; so a queue whose messages have one priority is in
// the order of arrival, and costs one comparison an item.

// priorityStep is what a level of priority is worth, in milliseconds.
const priorityStep = 100

// lead is what a priority is worth, in milliseconds.
func lead(priority uint8) uint32 { return uint32(priority) * priorityStep }

// place ranks an item (a gap has its lead as the rank) and says where it belongs: behind everything
// that came before it, but for less urgent items of other topics at the end of the queue.
func (h *Hub) place(o *outbox, it *item) (at uint32) {
	at = o.n
	switch it.kind {
	case itemControl:
		return at
	case itemMessage:
		it.rank = lead(it.m.Priority)
		o.expire(it.m.ExpiresAt)
	}
	it.rank = h.ms - it.rank
	i := o.n
	for ; i > 0; i-- {
		x := o.at(i - 1)
		if x.kind == itemDead {
			continue
		}
		if x.kind == itemControl || !later(x.rank, it.rank) || o.begun(i-1) {
			break
		}
		if x.topic() == it.topic() {
			it.rank = x.rank // others may overtake the two
			break
		}
		at = i - 1
	}
	if at < o.n {
		o.moved = true
		h.looked(int(o.n - i))
	}
	return at
}

// later compares ranks, which wrap around.
func later(a, b uint32) bool { return int32(a-b) > 0 }

// topic of a message or a gap.
func (it *item) topic() string {
	if it.m != nil {
		return it.m.Topic
	}
	return it.t.topic.name
}

// oldestEphemeral finds the message that no log has which came first and has not begun to leave. Of
// those that came at once it is the least urgent.
func (h *Hub) oldestEphemeral(o *outbox) (oldest uint32, found bool) {
	var first uint32
	var priority uint8
	for i := range o.n {
		it := o.at(i)
		if it.kind != itemMessage || it.m.Seq != 0 || o.begun(i) {
			continue
		}
		came := it.rank + lead(it.m.Priority)
		if !found || later(first, came) || first == came && it.m.Priority < priority {
			oldest, first, priority, found = i, came, it.m.Priority, true
		}
		if !o.moved {
			return oldest, true
		}
	}
	h.looked(int(o.n))
	return oldest, found
}
