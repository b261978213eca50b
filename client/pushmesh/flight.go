package pushmesh

import (
	"errors"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/link"
)

// ErrSettled is what Ack and Nack return where the message was ACKed or Nacked before: by them, or
// by what its handler returned.
var ErrSettled = errors.New("pushmesh: the message is settled already")

// errAsked is the reason of Delivery.Nack.
var errAsked = errors.New("asked for again")

// flight is a durable message whose outcome stays open after it was dealt with: a handler has it on
// a goroutine of its own, or the application ACKs it. Its cursors owe it, so that a resume asks for
// it again; the copy that then comes is not handed over. Guarded by Subscriber.mu.
type flight struct {
	t       *topicState
	d       *Delivery
	link    *link.Conn // that the last copy came over
	holders []*cursor
	open    int // answers that are owed
	nack    error
}

// reply is what a Delivery settles. That of handlers that run one at a time is the Subscriber's,
// and used again for every message.
type reply struct {
	s      *Subscriber
	d      *Delivery // whose reply it is; nil: of none any more
	c      *cursor
	f      *flight // nil: what the handler returns, or was said before, counts when it returns
	manual bool
	done   bool
	nack   error
}

// Ack settles the message as a handler does that returns nil. With WithManualAck that is when it is
// ACKed, from whichever goroutine and whenever that is; otherwise it is once the handler has
// returned, whatever it returns. ErrSettled: it was settled before. A subscription without WithAck
// has nothing to ACK (UNSUPPORTED), and ephemeral messages need none.
func (d *Delivery) Ack() error { return d.settle(nil) }

// Nack settles the message as a handler does that returns an error: it comes again, in after at the
// earliest. Otherwise it is as Ack.
func (d *Delivery) Nack(after time.Duration) error { return d.settle(NackAfter(after, errAsked)) }

func (d *Delivery) settle(nack error) error {
	if d.Seq == 0 {
		return nil
	}
	r := d.reply
	if r == nil {
		return ErrSettled
	}
	s := r.s
	s.mu.Lock()
	defer s.unlock()
	switch {
	case r.d != d || r.done:
		return ErrSettled
	case s.closing && s.link == nil:
		return s.endError()
	case !r.c.sub.request.GetAck():
		return &Error{Code: CodeUnsupported, Message: "the subscription has no WithAck: there is nothing to ACK"}
	}
	r.done, r.nack = true, nack
	if r.manual {
		s.replied(r)
	}
	return nil
}

// hold keeps a message's outcome open for one of its cursors. Called with s.mu held, as are the
// next ones.
func (s *Subscriber) hold(f *flight, c *cursor) {
	f.open++
	if c.held == nil {
		c.held = map[uint64]*flight{}
	}
	c.held[f.d.Seq] = f
	if !c.sub.shared() {
		s.owe(f.t, c, f.d.Seq)
	}
}

// owe notes that a message was handed over and is not done: a resume must not skip it.
func (s *Subscriber) owe(t *topicState, c *cursor, seq uint64) {
	if given, some := c.Failed(seq); some {
		s.gap(Gap{
			Filter: c.sub.Filter(), Topic: t.name, Epoch: c.Epoch, From: given.Lo, To: given.Hi,
			Missed: given.Hi - given.Lo + 1, Code: CodeAttemptsExhausted,
		})
	}
}

// replied takes the outcome of a message that was held, and settles it with the last.
func (s *Subscriber) replied(r *reply) {
	f, c := r.f, r.c
	delete(c.held, f.d.Seq)
	s.judge(f.t, c, f.d.Seq, r.nack, &f.nack)
	s.landed(f)
}

// landed notes that an answer is there.
func (s *Subscriber) landed(f *flight) {
	if f.open--; f.open > 0 {
		return
	}
	s.held--
	if f.link == s.link { // what came over another connection comes again
		f.holders = slices.DeleteFunc(f.holders, renewed)
		s.settle(f.t, f.d, f.link, f.holders, f.nack)
	}
	if s.draining {
		s.changed.Broadcast()
	}
}

// renewed reports whether a log that a message was of is gone meanwhile.
func renewed(c *cursor) bool { return c.gone }

// judge notes what came of handing a message over to a cursor's handler.
func (s *Subscriber) judge(t *topicState, c *cursor, seq uint64, err error, nack *error) {
	if seq == 0 || c.gone {
		return
	}
	acked := c.sub.request.GetAck()
	switch {
	case c.sub.shared():
	case err == nil || !acked:
		c.Succeeded(seq)
		c.sub.advanced(c)
		return
	default:
		s.owe(t, c, seq)
	}
	if acked && err != nil {
		*nack = err
	}
}

// take has a message that is handed over have a reply.
func (r *reply) take(d *Delivery, c *cursor) {
	r.d, r.c, r.done, r.nack = d, c, false, nil
	d.reply = r
}

// outcome is what a handler that returned err says of its message, unless it was said before.
func (r *reply) outcome(err error) error {
	if r.done {
		return r.nack
	}
	return err
}
