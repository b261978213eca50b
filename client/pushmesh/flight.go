package pushmesh

import (
	"errors"
	"time"

	"github.com/pushmesh/pushmesh/client/internal/link"
)

// ErrSettled is what Ack and Nack return where the message was ACKed or Nacked before: by them, or
// by what its handler returned.
var ErrSettled = errors.New("pushmesh: the message is settled already")

// errAsked is the reason of Delivery.Nack.
var errAsked = errors.New("asked for again")

// holder is a cursor that a message is for.
type holder struct {
	*cursor
	link *link.Conn // that its last copy came over
	nack error      // of its handler, last; nil: it refused nothing
}

// counts reports whether the edge of a connection waits for word of the message. What came over
// another one comes again, and of a log that is gone, or for a subscription that is being ended or
// has, nobody wants to know.
func (h *holder) counts(l *link.Conn) bool {
	return h.link == l && !h.gone && !h.sub.leaving() && h.sub.request.GetAck()
}

// flight is a durable message whose outcome stays open after it was dealt with: a handler has it on
// a goroutine of its own, or the application ACKs it. Its cursors owe it, so that a resume asks for
// it again; the copy that then comes is not handed over to who has it, and all that is open of it
// is settled together. Guarded by Subscriber.mu.
type flight struct {
	t       *topicState
	seq     uint64
	holders []holder
	open    int        // answers that are owed
	link    *link.Conn // that the last copy came over
	named   bool       // which named subscriptions, or one before it over that connection
	into    *flight    // that it has become part of; nil: none
}

// of is a cursor's part of it; nil: it is not for that.
func (f *flight) of(c *cursor) *holder {
	for i := range f.holders {
		if f.holders[i].cursor == c {
			return &f.holders[i]
		}
	}
	return nil
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
	over   bool // nobody waits for it any more
	nack   error
}

// flight is what it is an answer of.
func (r *reply) flight() *flight {
	for r.f.into != nil {
		r.f = r.f.into
	}
	return r.f
}

// Ack settles the message as a handler does that returns nil. With WithManualAck that is when it is
// ACKed, from whichever goroutine and whenever that is, while its handler runs or later; otherwise
// it is once the handler has returned, whatever it returns. ErrSettled: it was settled before.
// ErrClosed: its subscription, or the Subscriber, has ended. A subscription without WithAck has
// nothing to ACK (UNSUPPORTED), and ephemeral messages need none.
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
	case r.f == nil && r.d != d:
		return ErrSettled
	case r.over, !r.done && (r.c.sub.ending() || s.closing && s.link == nil):
		return s.endError()
	case r.done:
		return ErrSettled
	case !r.c.sub.request.GetAck():
		return &Error{Code: CodeUnsupported, Message: "the subscription has no WithAck: there is nothing to ACK"}
	}
	r.done, r.nack = true, nack
	if r.manual {
		s.replied(r)
	}
	return nil
}

// What follows is called with s.mu held.

// fly keeps the outcome of a message that is dealt with open. What f is open of it already, it is
// one with from then on; nil: nothing is.
func (s *Subscriber) fly(x *handing, f *flight) {
	switch {
	case x.f == nil:
		if f == nil {
			f = &flight{t: x.t, seq: x.d.Seq, link: x.link}
			s.held++
		}
		f.named = f.named && f.link == x.link || len(x.d.subs) > 0
		f.link = x.link
		f.open++ // until x is dealt with
		x.f = f
		f.hold(s.involved)
	case f != nil && f != x.f:
		f.into = x.f
		x.f.open += f.open
		s.held--
		for _, h := range f.holders {
			if x.f.of(h.cursor) == nil {
				x.f.holders = append(x.f.holders, h)
			}
		}
	}
}

// hold has a flight be for these cursors, too, as the last copy is.
func (f *flight) hold(holders []holder) {
	for _, h := range holders {
		if had := f.of(h.cursor); had != nil {
			*had = h
		} else {
			f.holders = append(f.holders, h)
		}
	}
}

// hold keeps a message's outcome open for the cursor of a reply.
func (s *Subscriber) hold(r *reply) {
	f, c := r.f, r.c
	f.open++
	if c.held == nil {
		c.held = map[uint64]*reply{}
	}
	c.held[f.seq] = r
	if !c.sub.shared() {
		s.owe(f.t, c, f.seq)
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
	if r.over {
		return
	}
	f, c := r.flight(), r.c
	delete(c.held, f.seq)
	f.of(c).nack = s.judge(f.t, c, f.seq, r.nack)
	s.landed(f)
}

// disown lets a message go that nobody waits for any more: its subscription has ended, or it is
// another member's of the group.
func (s *Subscriber) disown(r *reply) {
	r.done, r.over = true, true
	if r.f == nil {
		return
	}
	f := r.flight()
	delete(r.c.held, f.seq)
	s.landed(f)
}

// landed notes that an answer is there.
func (s *Subscriber) landed(f *flight) {
	if f.open--; f.open > 0 {
		return
	}
	s.held--
	s.settle(f.t, f.seq, f.named, f.holders)
	if s.draining {
		s.changed.Broadcast()
	}
}

// judge notes what came of handing a message over to a cursor's handler, and returns what is to be
// Nacked.
func (s *Subscriber) judge(t *topicState, c *cursor, seq uint64, err error) (nack error) {
	if seq == 0 || c.gone {
		return nil
	}
	acked := c.sub.request.GetAck()
	switch {
	case c.sub.shared():
	case err == nil || !acked:
		c.Succeeded(seq)
		c.sub.advanced(c)
		return nil
	default:
		s.owe(t, c, seq)
	}
	if !acked {
		return nil
	}
	return err
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
