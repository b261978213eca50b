package pushmesh

import (
	"bytes"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/client/internal/message"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// reader turns the frames of one connection into events of the subscriber.
type reader struct {
	s     *Subscriber
	l     *link.Conn
	away  *goAway
	names message.Names
}

// read handles frames until the connection ends, and says why it did.
func (s *Subscriber) read(l *link.Conn) error {
	r := reader{s: s, l: l, names: message.Names{}}
	for {
		t, body, err := l.Next()
		if err == nil {
			err = r.frame(t, body)
		}
		switch {
		case err == nil:
			continue
		case r.away != nil:
			return r.away
		}
		return err
	}
}

// frame handles one frame; unknown ones are skipped, as WIRE demands of clients.
func (r *reader) frame(t wirev1.FrameType, body []byte) error {
	switch t {
	case wirev1.FrameType_FRAME_TYPE_MESSAGE:
		return r.message(body)
	case wirev1.FrameType_FRAME_TYPE_PROGRESS:
		p := &wirev1.Progress{}
		if proto.Unmarshal(body, p) != nil {
			return errBadMessage
		}
		return r.s.take(item{progress: p, size: len(body)})
	case wirev1.FrameType_FRAME_TYPE_PONG:
		r.l.Pong(body)
	case wirev1.FrameType_FRAME_TYPE_SUBSCRIBED:
		return r.subscribed(body)
	case wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED:
		return r.unsubscribed(body)
	case wirev1.FrameType_FRAME_TYPE_ERROR:
		return r.failure(body)
	case wirev1.FrameType_FRAME_TYPE_GO_AWAY:
		return r.goAway(body)
	}
	return r.s.roomsFrame(t, body)
}

func (r *reader) message(body []byte) error {
	if r.s.cfg.Inline {
		d := &r.s.scratch
		if err := d.decode(body, r.names.Of); err != nil {
			return err
		}
		return r.s.take(item{d: d, link: r.l})
	}
	d := &Delivery{}
	if err := d.decode(bytes.Clone(body), r.names.Of); err != nil {
		return err
	}
	return r.s.take(item{d: d, link: r.l, size: len(body)})
}

// take deals with an item here or has the goroutine of handlers do it.
func (s *Subscriber) take(it item) error {
	if !s.cfg.Inline {
		return s.enqueue(it)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return nil
	}
	s.dispatching = true
	s.deal(0, it)
	s.dispatching = false
	return nil
}

func (r *reader) subscribed(body []byte) error {
	var m wirev1.Subscribed
	if proto.Unmarshal(body, &m) != nil {
		return errBadMessage
	}
	r.s.mu.Lock()
	defer r.s.unlock()
	if sub := r.s.subs[m.GetId()]; sub != nil {
		sub.subscribed(&m)
	}
	return nil
}

// unsubscribed confirms an Unsubscribe, or takes a subscription away.
func (r *reader) unsubscribed(body []byte) error {
	var m wirev1.Unsubscribed
	if proto.Unmarshal(body, &m) != nil {
		return errBadMessage
	}
	r.s.mu.Lock()
	defer r.s.unlock()
	sub := r.s.subs[m.GetId()]
	switch {
	case sub == nil:
		r.s.roomsRefused(m.GetId(), &Error{Code: Code(m.GetCode()), Message: m.GetReason()})
	case sub.unasked != nil:
		sub.end(nil)
	default:
		sub.refused(&Error{Code: Code(m.GetCode()), Message: m.GetReason()})
	}
	return nil
}

// failure takes an Error: of a subscription, of another request, or of the connection.
func (r *reader) failure(body []byte) error {
	var m wirev1.Error
	if proto.Unmarshal(body, &m) != nil {
		return errBadMessage
	}
	e := decodeError(body)
	if m.GetRef() == 0 {
		return e
	}
	r.s.mu.Lock()
	defer r.s.unlock()
	if sub := r.s.subs[m.GetRef()]; sub != nil {
		sub.refused(e)
	} else {
		r.s.roomsRefused(m.GetRef(), e)
	}
	return nil
}

// goAway goes on with the connection until the edge's time for reconnecting has come, so that
// nothing under way is cut off; the edge may end it earlier. A reason that trying again can't help
// ends it now.
func (r *reader) goAway(body []byte) error {
	r.away = decodeGoAway(body)
	if r.s.final(r.away) != nil || r.away.due.IsZero() {
		return r.away
	}
	if err := r.l.ReadUntil(r.away.due); err != nil {
		return err
	}
	return r.s.ctx.Err() // Close set its own deadline, perhaps just before
}
