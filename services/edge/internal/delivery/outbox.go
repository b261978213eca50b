package delivery

import (
	"fmt"
	"math/bits"
	"time"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"
)

const (
	// maxControl is how many bytes of answers a connection may owe before reading from it waits.
	maxControl = 128 << 10
	// closeTimeout is how long a closing connection has for its last bytes.
	closeTimeout = 2 * time.Second
	// gatherItems and gatherBytes bound one write. An item takes at most three pieces, and a kernel
	// takes 1,024.
	gatherItems = 340
	gatherBytes = 512 << 10
	// deepQueue is how many messages make a connection's turn to be flushed come at once: others
	// may be many, and the queue is bounded.
	deepQueue = 128
)

type itemKind uint8

const (
	itemDead    itemKind = iota // was dropped in the middle of the queue
	itemControl                 // a frame of the edge's own
	itemMessage
	itemGap  // a Progress of a track: seqs that will not come. from 0: a new epoch
	itemRest // of a message whose beginning was sent
)

// item is one thing owed to a connection. Messages are shared by reference; only what differs
// between subscribers is written out, and only when it leaves.
type item struct {
	m    *exchange.Message // the first of a run
	t    *track            // of a durable message or a gap
	b    []byte            // what is shared, or of the edge's own; of a run all frames
	from uint64            // of a gap; of a message its mark, where b is what is shared
	n    uint32            // messages
	// of an ephemeral message with subs (of several the lowest), or of a group's
	sub uint32
	// milliseconds: when it came, less what its priority is worth. Lower ones go first
	rank    uint32
	attempt uint16 // of a gap made of messages that were queued: the Code
	kind    itemKind
	again   bool // a redelivery
}

// outbox is what is owed to one connection, in order. Its ring is borrowed from the hub and given
// back when empty.
type outbox struct {
	buf     []item
	head    uint32
	n       uint32 // items, dead ones included
	dead    uint32
	msgs    uint32
	bytes   int
	control int    // bytes of control, and shortAnswer for each
	off     int    // of the first item, already sent
	expires uint64 // no message has expired before, Unix microseconds; 0: none will
	moved   bool   // items are not in the order in which they came
	stuck   bool   // the kernel takes nothing now
	class   uint8  // of its debt; 0: not listed
	level   uint8  // of the queue's depth, of levels: told, or not worth it
	late    bool   // it took nothing for StuckTimeout
	kernel  int    // bytes that the kernel holds while stuck
	stuckAt int64  // since when its client has taken nothing, while stuck
	taken   uint64 // Held.Taken as of then
	held    int    // bytes that count for the budget
	owner   *conn
	// Of the list of those that owe about as much.
	prev, next *outbox
	room       [2]item
}

const (
	itemSize   = int(unsafe.Sizeof(item{}))
	outboxSize = int(unsafe.Sizeof(outbox{}))
	// shortAnswer is added to what an answer that is not read counts for: short ones are mostly
	// what keeps them.
	shortAnswer = 32
)

func (o *outbox) at(i uint32) *item { return &o.buf[(o.head+i)&uint32(len(o.buf)-1)] }

// begun reports whether some bytes of the first item have left: it can't be dropped any more.
func (o *outbox) begun(i uint32) bool { return i == 0 && (o.off > 0 || o.at(0).kind == itemRest) }

// rings keeps the rings that no connection uses, by size.
type rings [17][][]item

// ringBytesKept bounds what is kept of each size.
const ringBytesKept = 8 << 20

func (r *rings) take(size int) []item {
	class := bits.TrailingZeros(uint(size))
	if class < len(r) && len(r[class]) > 0 {
		last := len(r[class]) - 1
		buf := r[class][last]
		r[class] = r[class][:last]
		return buf
	}
	return make([]item, size)
}

func (r *rings) give(buf []item) {
	class := bits.TrailingZeros(uint(len(buf)))
	if len(buf) == 0 || class >= len(r) || len(r[class])*len(buf)*int(unsafe.Sizeof(item{})) >= ringBytesKept {
		return
	}
	r[class] = append(r[class], buf)
}

func (h *Hub) push(c *conn, it item) {
	o := c.out
	if o == noOutbox {
		o = h.outboxes.Take()
		o.buf, o.owner, c.out = o.room[:], c, o
		h.charge(o, outboxSize)
	}
	if at := h.place(o, &it); !o.extend(at, &it) {
		if int(o.n) == len(o.buf) {
			h.grow(o)
		}
		o.n++
		for i := o.n - 1; i > at; i-- {
			*o.at(i) = *o.at(i - 1)
		}
		*o.at(at) = it
	}
	h.account(c, &it, 1)
	if o.msgs >= deepQueue && o.msgs-it.n < deepQueue {
		h.deep = append(h.deep, c.slot)
	}
	if o.stuck {
		h.deepens(c)
	}
	if !c.dirty {
		h.markDirty(c)
	}
}

// grow makes room for as many items again.
func (h *Hub) grow(o *outbox) { h.move(o, 2*len(o.buf)) }

// move puts the items into a ring of another size.
func (h *Hub) move(o *outbox, size int) {
	moved := h.rings.take(size)
	for i := range o.n {
		moved[i] = *o.at(i)
		*o.at(i) = item{}
	}
	h.giveRing(o)
	o.buf, o.head = moved, 0
	h.charge(o, size*itemSize)
}

func (h *Hub) account(c *conn, it *item, sign int) {
	cost := len(it.b) * sign
	c.out.bytes += cost
	h.stats.QueuedBytes += int64(cost)
	h.charge(c.out, cost)
	switch it.kind {
	case itemControl:
		c.out.control += cost + shortAnswer*sign
	case itemMessage, itemRest:
		n := it.n * uint32(sign)
		c.out.msgs += n
		if it.t != nil {
			it.t.queued += n
		}
	}
}

// kill drops the i-th item; it must not have begun.
func (h *Hub) kill(c *conn, i uint32) {
	it := c.out.at(i)
	h.account(c, it, -1)
	*it = item{}
	c.out.dead++
	h.tidy(c)
}

// tidy closes the gaps once there are many.
func (h *Hub) tidy(c *conn) {
	if c.out.dead > 64 && c.out.dead > c.out.n/2 {
		h.compact(c)
	}
}

// compact closes the gaps that dead items left.
func (h *Hub) compact(c *conn) {
	o := c.out
	if o.dead == 0 {
		return
	}
	kept := uint32(0)
	for i := range o.n {
		if it := *o.at(i); it.kind != itemDead {
			*o.at(kept) = it
			kept++
		}
	}
	for i := kept; i < o.n; i++ {
		*o.at(i) = item{}
	}
	o.n, o.dead = kept, 0
	if kept == 0 {
		h.emptied(c)
	}
}

func (h *Hub) popHead(c *conn) {
	o := c.out
	*o.at(0) = item{}
	o.head = (o.head + 1) & uint32(len(o.buf)-1)
	o.n--
	o.off = 0
	if o.n == 0 {
		h.emptied(c)
	}
}

// giveRing gives the ring back where it is not the outbox's own room.
func (h *Hub) giveRing(o *outbox) {
	if len(o.buf) != len(o.room) {
		h.charge(o, -len(o.buf)*itemSize)
		h.rings.give(o.buf)
	}
}

// emptied gives an outbox back in which nothing is left, unless it says that the socket is stuck.
func (h *Hub) emptied(c *conn) {
	o := c.out
	if !o.stuck {
		h.giveOutbox(c)
		return
	}
	h.giveRing(o)
	o.buf, o.head, o.dead, o.off, o.expires, o.moved = o.room[:], 0, 0, 0, 0, false
}

// giveOutbox returns an outbox that is empty.
func (h *Hub) giveOutbox(c *conn) {
	if c.out != noOutbox {
		o := c.out
		h.giveRing(o)
		h.charge(o, -outboxSize)
		if slab.Scribbles && (o.n != 0 || o.msgs != 0 || o.bytes != 0 || o.control != 0 || o.held != 0 || o.class != 0) {
			panic(fmt.Sprintf("hub: an outbox is given back that counts %d items, %d messages, %d bytes, %d for the budget", o.n, o.msgs, o.bytes, o.held))
		}
		// its items were cleared, and what they counted for was taken off
		o.buf, o.owner, o.head, o.dead, o.off, o.expires, o.moved, o.level = nil, nil, 0, 0, 0, 0, false, 0
		h.outboxes.GiveCleared(o)
		c.out = noOutbox
	}
}

// freeQueue drops what is owed, at most so many items.
func (h *Hub) freeQueue(c *conn, most int) {
	for ; c.out.n > 0 && most > 0; most-- {
		h.account(c, c.out.at(0), -1)
		h.popHead(c)
	}
}

// dropQueue drops what need not be sent before the last words of a connection.
func (h *Hub) dropQueue(c *conn) {
	h.looked(int(c.out.n))
	for i := range c.out.n {
		if it := c.out.at(i); it.kind != itemDead && !c.out.begun(i) && it.kind != itemControl {
			h.account(c, it, -1)
			*it = item{}
			c.out.dead++
		}
	}
	h.compact(c)
}

// full reports whether a message of so many bytes must wait, and why. An empty queue takes any, if
// the budget allows.
func (h *Hub) full(c *conn, size int) wirev1.Code {
	o := c.out
	switch {
	case int(o.msgs) >= h.lim.QueueMessages || o.bytes+int(c.sealed)+size > h.lim.QueueBytes && o.msgs > 0:
		return wirev1.Code_CODE_QUEUE_FULL
	case !h.afford(c, size+o.more(1)):
		return wirev1.Code_CODE_MEMORY_BUDGET
	}
	return wirev1.Code_CODE_OK
}

// more is what so many items more take beside their bytes.
func (o *outbox) more(items int) int {
	size := 0
	if o.held == 0 {
		size = outboxSize
	}
	if int(o.n)+items > max(len(o.buf), len(o.room)) {
		size += 2 * (int(o.n) + items) * itemSize
	}
	return size
}

// drained reports whether the queue is short enough for more from the log: who is behind costs an
// eighth of the queue at most, and while its socket is stuck nothing.
func (h *Hub) drained(c *conn) bool {
	return !c.out.stuck && c.out.bytes+int(c.sealed) <= h.lim.QueueBytes/8 && int(c.out.msgs) <= h.lim.QueueMessages/8
}

// control owes the connection a frame of the edge's own.
func (h *Hub) control(c *conn, t wirev1.FrameType, m proto.Message) {
	h.push(c, item{kind: itemControl, b: h.encode(t, m)})
}

// encode makes a frame in the arena. Messages of the edge's own always encode: their strings were
// checked.
func (h *Hub) encode(t wirev1.FrameType, m proto.Message) []byte {
	at := h.room()
	out, err := wire.Append(h.arena[at:at:cap(h.arena)], t, m)
	if err != nil {
		out, _ = wire.Append(nil, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: wirev1.Code_CODE_INTERNAL})
		return out
	}
	if at+len(out) <= cap(h.arena) {
		h.arena = h.arena[:at+len(out)]
	}
	return out[:len(out):len(out)]
}

// room makes sure that the arena has place for a short frame, and says where.
func (h *Hub) room() (at int) {
	if cap(h.arena)-len(h.arena) < 256 {
		h.arena = make([]byte, 0, 8<<10)
	}
	return len(h.arena)
}

// Deep takes the slots whose queue has grown long since it was asked last.
func (h *Hub) Deep(dst []uint32) []uint32 {
	dst = append(dst, h.deep...)
	h.deep = h.deep[:0]
	return dst
}

// Gather appends to dst what the next write of the connection should hold. The pieces are good
// until the hub is used again, but to Gather for other connections. There are none where all that
// was owed has expired.
func (h *Hub) Gather(slot uint32, dst [][]byte) [][]byte {
	c := h.conns.get(slot)
	if c.out.expires != 0 && c.out.expires <= h.wall {
		h.sending = true
		h.skipExpired(c)
		h.sending = false
	}
	o := c.out
	if !h.gathering {
		h.gathering, h.scratch = true, h.scratch[:0]
	}
	bytes := 0
	for i := uint32(0); i < min(o.n, gatherItems) && bytes < gatherBytes; i++ {
		it, size := o.at(i), 0
		switch it.kind {
		case itemDead:
		case itemControl, itemGap, itemRest:
			b := it.b
			if i == 0 {
				b = b[o.off:]
			}
			dst, size = append(dst, b), len(b)
		case itemMessage:
			if it.plain() {
				b := it.b
				if i == 0 {
					b = b[o.off:]
				}
				dst, size = append(dst, b), len(b)
				break
			}
			head, tail := h.ends(it)
			body := it.m.Frame[wire.HeaderSize:]
			dst, size = append(dst, head, body, tail), len(head)+len(body)+len(tail)
		}
		bytes += size
	}
	return dst
}

// rest is how many bytes of the connection's first item have not left.
func (h *Hub) rest(o *outbox) int {
	it := o.at(0)
	if it.kind == itemMessage && !it.plain() {
		h.scratch = h.scratch[:0]
		_, tail := h.ends(it)
		return len(it.m.Frame) + len(tail)
	}
	return len(it.b) - o.off
}

// plain reports whether a message is sent as it is in b.
func (it *item) plain() bool {
	return it.attempt == 0 && (it.sub == 0 && (it.t == nil || it.t.kind == kindPlain) || mark(it.from) == addressed)
}

// ends makes the header and the tail of a message with fields of its own, in the scratch.
func (h *Hub) ends(it *item) (head, tail []byte) {
	at := len(h.scratch)
	h.scratch = append(h.scratch, 0, 0, 0, 0)
	score, isUnranked := mark(it.from).of()
	h.scratch = wire.AppendTail(h.scratch, uint32(it.attempt), score, h.subsOf(it))
	if isUnranked {
		h.scratch = wire.AppendUnranked(h.scratch)
	}
	head, tail = h.scratch[at:at+wire.HeaderSize], h.scratch[at+wire.HeaderSize:]
	wire.PutHeader(head, len(it.m.Frame)-wire.HeaderSize+len(tail), wirev1.FrameType_FRAME_TYPE_MESSAGE)
	return head, tail
}

func (h *Hub) subsOf(it *item) []uint32 {
	h.ids = h.ids[:0]
	if it.sub != 0 {
		h.ids = append(h.ids, it.sub)
	} else if it.t != nil && it.t.kind != kindPlain {
		h.ids = it.t.wanting(h.ids, it.m)
	}
	return h.ids
}

// Wrote says that the first n bytes of what Gather gave for the connection have left for the
// kernel.
func (h *Hub) Wrote(slot uint32, n int) {
	c := h.conns.get(slot)
	held := h.holds(c)
	h.gathering, h.sending = false, true
	for c.out.n > 0 {
		size := h.rest(c.out)
		if n < size {
			n = h.wroteSome(c, n)
			break
		}
		n -= size
		it := *c.out.at(0)
		if it.kind == itemDead {
			c.out.dead--
			h.popHead(c)
			continue
		}
		h.account(c, &it, -1)
		h.popHead(c)
		h.left(c, &it)
	}
	if n > 0 {
		h.begin(c, n)
	}
	if c.waiting > 0 && h.drained(c) {
		h.waker.wake(c)
	}
	h.sending = false
	if c.claims != nil {
		h.rooms.claims.Flush(c.claims)
	}
	if held && !h.holds(c) {
		h.resumed = append(h.resumed, c.slot)
	}
}

// begin notes that n bytes of the first item have left, and the rest has not.
func (h *Hub) begin(c *conn, n int) {
	if c.out.at(0).n > 1 {
		h.split(c, 0)
	}
	it := c.out.at(0)
	if it.kind != itemMessage || it.plain() {
		c.out.off += n
		return
	}
	// What differs between subscribers may change until the rest is sent; these bytes must not.
	h.scratch = h.scratch[:0]
	head, tail := h.ends(it)
	whole := make([]byte, 0, len(it.m.Frame)+len(tail))
	whole = append(append(append(whole, head...), it.m.Frame[wire.HeaderSize:]...), tail...)
	h.account(c, it, -1)
	it.kind, it.b = itemRest, whole[n:]
	h.account(c, it, 1)
}

// left is told of each item once all its bytes have left for the kernel.
func (h *Hub) left(c *conn, it *item) {
	if it.kind != itemMessage && it.kind != itemRest {
		return
	}
	h.stats.Deliveries += uint64(it.n)
	if it.again {
		h.stats.Redeliveries++
	}
	if it.t == nil && it.sub != 0 && it.m.Seq > 0 {
		h.groups.onSent(c, it.sub, it.m)
	}
	if it.t == nil || !it.t.follows() {
		return
	}
	for m := it.m; m != nil && it.n > 0; m = m.Next {
		h.sent(c, it.t, m)
		it.n--
	}
}
