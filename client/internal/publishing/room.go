// Package publishing has a client's messages on their way to the edge: in the order of the calls,
// no more unanswered than the edge allows, and those that may be published twice again on the next
// connection.
package publishing

import (
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/internal/ext"
	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// ErrBroken answers a message that was sent, whose connection ended before its answer came.
var ErrBroken = errors.New("the connection broke before the answer")

// Open answers a message that the mesh may have: it was sent, and its answer was lost with the
// connection. Err is why there will be no other answer.
type Open struct{ Err error }

func (o *Open) Error() string { return "it may have been published: " + o.Err.Error() }
func (o *Open) Unwrap() error { return o.Err }

// defaultWindow is how many messages may be unanswered where Welcome names no number.
const defaultWindow = 16

// Message is one that is to be published.
type Message struct {
	publish *wirev1.Publish
	// repeat: it is published again where the connection took the answer.
	repeat bool
	number uint64 // of the call
	sent   bool
	lost   bool // so was its answer, with a connection
	done   chan Answer
}

// Answer is what came of a message: what the mesh answered, or why it did not.
type Answer struct {
	Published *wirev1.Published
	Err       error
}

// Done has the answer, once.
func (m *Message) Done() <-chan Answer { return m.done }

// answer has the outcome. What is refused the second time may have been taken the first time.
func (m *Message) answer(p *wirev1.Published, err error) {
	if err != nil && m.lost {
		err = &Open{err}
	}
	m.done <- Answer{p, err}
}

// Room has the messages of one Subscriber, and is called under its lock.
type Room struct {
	ext.Host
	calls      uint64
	waiting    []*Message // in the order of the calls
	unanswered map[uint32]*Message
}

// New is the room of a host.
func New(h ext.Host) *Room { return &Room{Host: h, unanswered: map[uint32]*Message{}} }

// Add takes a message on, and has it written to the connection where there is room: flush says that
// the caller is to flush that, without the lock.
func (r *Room) Add(p *wirev1.Publish, repeat bool) (m *Message, flush bool) {
	r.calls++
	m = &Message{publish: p, repeat: repeat, number: r.calls, done: make(chan Answer, 1)}
	r.waiting = append(r.waiting, m)
	flush = r.put(r.Link())
	r.Wake() // the reader reads on for the answer
	return m, flush
}

// Withdraw forgets a message that nobody waits for any more: it is not sent, or not again. It
// reports whether it was sent.
func (r *Room) Withdraw(m *Message) (sent bool) {
	m.repeat = false
	r.waiting = slices.DeleteFunc(r.waiting, func(w *Message) bool { return w == m })
	return m.sent
}

// put writes what waits to the connection's buffer, as far as the edge takes it, and reports
// whether there was something.
func (r *Room) put(l *link.Conn) (some bool) {
	for l != nil && len(r.waiting) > 0 && len(r.unanswered) < window(l) {
		m := r.waiting[0]
		r.waiting = r.waiting[1:]
		m.publish.Id = r.NextID()
		if bad := l.Put(wirev1.FrameType_FRAME_TYPE_PUBLISH, m.publish); bad != nil {
			m.answer(nil, bad)
			continue
		}
		r.unanswered[m.publish.GetId()] = m
		m.sent, some = true, true
	}
	return some
}

func window(l *link.Conn) int {
	if n := l.Welcome().GetPublishWindow(); n > 0 {
		return int(n)
	}
	return defaultWindow
}

// answered is false where no message has the id.
func (r *Room) answered(id uint32, p *wirev1.Published, err error) bool {
	m := r.unanswered[id]
	if m == nil {
		return false
	}
	delete(r.unanswered, id)
	m.answer(p, err)
	if l := r.Link(); r.put(l) {
		// The one that reads must not wait for an edge that waits for it. A failed write closes the
		// connection; the reader reports it.
		go func() { _ = l.Flush() }()
	}
	return true
}

// Uses reports whether a message has the id.
func (r *Room) Uses(id uint32) bool { return r.unanswered[id] != nil }

// Owes reports whether a message is unanswered.
func (r *Room) Owes() bool { return len(r.unanswered) > 0 }

// Connected publishes what waits.
func (r *Room) Connected(l *link.Conn) { r.put(l) }

// Broken has what may be published twice wait for the next connection, before all that was never
// sent, and answers the rest.
func (r *Room) Broken() {
	for _, m := range r.unanswered {
		if m.repeat {
			m.lost = true
			r.waiting = append(r.waiting, m)
		} else {
			m.done <- Answer{Err: ErrBroken}
		}
	}
	clear(r.unanswered)
	slices.SortFunc(r.waiting, func(a, b *Message) int { return int(int64(a.number - b.number)) })
}

// End answers everything that waits, or would be published again. What was sent and may not be is
// answered by Broken.
func (r *Room) End(err error) {
	for _, m := range r.waiting {
		m.answer(nil, err)
	}
	r.waiting = nil
	for id, m := range r.unanswered {
		if m.repeat {
			delete(r.unanswered, id)
			m.lost = true
			m.answer(nil, err)
		}
	}
}

// Refused takes the refusal of a message.
func (r *Room) Refused(id uint32, err error) bool { return r.answered(id, nil, err) }

// Frame takes an answer.
func (r *Room) Frame(t wirev1.FrameType, body []byte) (bool, error) {
	if t != wirev1.FrameType_FRAME_TYPE_PUBLISHED {
		return false, nil
	}
	p := &wirev1.Published{}
	if proto.Unmarshal(body, p) != nil {
		return true, ext.ErrBadFrame
	}
	r.answered(p.GetId(), p, nil)
	return true, nil
}
