package delivery

import "github.com/pushmesh/pushmesh/services/edge/internal/exchange"

// A run is messages of one topic that follow each other, and whose frames lie side by side in
// memory: queued as one item, and sent as one piece. An item that has begun to leave never holds
// more than one message.

// run of messages.
type run struct {
	first *exchange.Message
	b     []byte // their frames
	n     uint32
}

// behind reports whether frame lies right behind b in the memory that b was cut from.
func behind(b, frame []byte) bool {
	return cap(b) > len(b) && len(frame) > 0 && &b[:len(b)+1][len(b)] == &frame[0]
}

// runsOf appends the runs that messages make.
func runsOf(dst []run, messages []*exchange.Message) []run {
	for i, m := range messages {
		if i > 0 && messages[i-1].Next == m && messages[i-1].Priority == m.Priority && behind(dst[len(dst)-1].b, m.Frame) {
			r := &dst[len(dst)-1]
			r.b, r.n = r.b[:len(r.b)+len(m.Frame)], r.n+1
			continue
		}
		dst = append(dst, run{m, m.Frame, 1})
	}
	return dst
}

// pushRuns queues runs of the messages in hand, which are sent as they are shared.
func (f *fanout) pushRuns(c *conn, t *track, runs []run) {
	for i := range runs {
		r := &runs[i]
		f.hub.push(c, item{kind: itemMessage, m: r.first, t: t, b: r.b, n: r.n})
	}
	c.out.expire(f.expires)
}

// fits reports whether so many messages may be queued together; where not, full says of each alone.
func (f *fanout) fits(c *conn, n, size int) bool {
	return int(c.out.msgs)+n <= f.hub.lim.QueueMessages && c.out.bytes+int(c.sealed)+size <= f.hub.lim.QueueBytes && f.hub.budget.Fits(size+c.out.more(len(f.runs)))
}

// extend makes it part of the item before at; false where the two are no run.
func (o *outbox) extend(at uint32, it *item) bool {
	if at == 0 || it.kind != itemMessage {
		return false
	}
	last := o.at(at - 1)
	if last.kind != itemMessage || last.t != it.t || !behind(last.b, it.b) || last.m.Priority != it.m.Priority || o.begun(at-1) || last.again || it.again || !last.plain() || !it.plain() {
		return false
	}
	last.b, last.n = last.b[:len(last.b)+len(it.b)], last.n+it.n
	return true
}

// trim takes the first message off a run of several.
func (h *Hub) trim(c *conn, it *item) (first item) {
	first = *it
	first.b, first.n = it.m.Frame, 1
	h.account(c, &first, -1)
	it.m, it.b, it.n = it.m.Next, it.b[len(first.b):], it.n-1
	return first
}

// split makes the first message of the i-th item, which is a run of several, an item of its own:
// the i-th.
func (h *Hub) split(c *conn, i uint32) {
	o := c.out
	if int(o.n) == len(o.buf) {
		h.grow(o)
	}
	o.head = (o.head - 1) & uint32(len(o.buf)-1)
	o.n++
	for j := range i {
		*o.at(j) = *o.at(j + 1)
	}
	first, rest := o.at(i), o.at(i+1)
	*first = *rest
	first.b, first.n = first.m.Frame, 1
	rest.m, rest.b, rest.n = rest.m.Next, rest.b[len(first.b):], rest.n-1
}

// wroteSome takes what has left of the first item, which is not all of it, and says how many bytes
// of the next message have.
func (h *Hub) wroteSome(c *conn, n int) int {
	for it := c.out.at(0); it.kind == itemMessage && it.n > 1 && n >= len(it.m.Frame); it = c.out.at(0) {
		n -= len(it.m.Frame)
		first := h.trim(c, it)
		h.left(c, &first)
	}
	return n
}
