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

// holder is a cursor that a message was handed over for, and the epoch under which it was.
type holder struct {
	*cursor
	epoch uint64
}

// renewed reports whether the message is of a log that is gone meanwhile.
func (h holder) renewed() bool { return h.epoch != 0 && h.Epoch != h.epoch }

// flight is a durable message whose outcome stays open after it was dealt with: a handler has it on
// a goroutine of its own, or the application ACKs it. Its cursors owe it, so that a resume asks for
// it again; the copy that then comes is not handed over. Guarded by Subscriber.mu.
type flight struct {
	t       *topicState
	d       *Delivery
	link    *link.Conn // that the last copy came over
	holders []holder
	open    int // answers that are owed
	nack    error
}

// of reports whether the flight is of a cursor's present log.
func (f *flight) of(c *cursor) bool {
	return slices.ContainsFunc(f.holders, func(h holder) bool { return h.cursor == c && !h.renewed() })
}

// reply is what a Delivery settles. That of handlers that run one at a time is the Subscriber's,
// and used again for every message.
type reply struct {
	s      *Subscriber
	d      *Delivery // whose reply it is; nil: of none any more
	h      holder
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
	case !r.h.sub.request.GetAck():
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
func (s *Subscriber) hold(f *flight, h holder) {
	f.open++
	if h.held == nil {
		h.held = map[uint64]*flight{}
	}
	h.held[f.d.Seq] = f
	if !h.sub.shared() {
		s.owe(f.t, h, f.d.Seq)
	}
}

// owe notes that a message was handed over and is not done: a resume must not skip it.
func (s *Subscriber) owe(t *topicState, h holder, seq uint64) {
	if given, some := h.Failed(seq); some {
		s.gap(Gap{
			Filter: h.sub.Filter(), Topic: t.name, Epoch: h.Epoch, From: given.Lo, To: given.Hi,
			Missed: given.Hi - given.Lo + 1, Code: CodeAttemptsExhausted,
		})
	}
}

// replied takes the outcome of a message that was held, and settles it with the last.
func (s *Subscriber) replied(r *reply) {
	f, h := r.f, r.h
	if h.held[f.d.Seq] == f {
		delete(h.held, f.d.Seq)
	}
	s.judge(f.t, h, f.d.Seq, r.nack, &f.nack)
	s.landed(f)
}

// landed notes that an answer is there.
func (s *Subscriber) landed(f *flight) {
	if f.open--; f.open > 0 {
		return
	}
	s.held--
	if f.link == s.link { // what came over another connection comes again
		f.holders = slices.DeleteFunc(f.holders, holder.renewed)
		s.settle(f.t, f.d, f.link, f.holders, f.nack)
	}
	if s.draining {
		s.changed.Broadcast()
	}
}

// judge notes what came of handing a message over to a cursor's handler.
func (s *Subscriber) judge(t *topicState, h holder, seq uint64, err error, nack *error) {
	if seq == 0 || h.renewed() {
		return
	}
	acked := h.sub.request.GetAck()
	switch {
	case h.sub.shared():
	case err == nil || !acked:
		h.Succeeded(seq)
		h.sub.advanced(h.cursor)
		return
	default:
		s.owe(t, h, seq)
	}
	if acked && err != nil {
		*nack = err
	}
}

// take has a message that is handed over have a reply.
func (r *reply) take(d *Delivery, h holder) {
	r.d, r.h, r.done, r.nack = d, h, false, nil
	d.reply = r
}

// outcome is what a handler that returned err says of its message, unless it was said before.
func (r *reply) outcome(err error) error {
	if r.done {
		return r.nack
	}
	return err
}
