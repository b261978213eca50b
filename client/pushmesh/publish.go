package pushmesh

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// publishing is a Publish that waits for its answer.
type publishing struct{ done chan answer }

type answer struct {
	result Result
	err    *Error
}

// Publish publishes over the subscriber's connection and waits for the answer; it waits for a
// connection and for room in the edge's publish window too. When the connection breaks first, a
// message with a DedupeKey that is not Ephemeral is published again; otherwise the *Error says
// Unknown. Backends use a Producer.
func (s *Subscriber) Publish(ctx context.Context, m ClientMessage) (Result, error) {
	if e := m.check(); e != nil {
		return Result{}, e
	}
	for {
		p, err := s.startPublish(ctx, m)
		if err != nil {
			return Result{}, err
		}
		select {
		case a := <-p.done:
			if a.err == nil {
				return a.result, nil
			}
			if a.err.Unknown && m.DedupeKey != "" && !m.Ephemeral {
				continue
			}
			return Result{}, a.err
		case <-ctx.Done():
			return Result{}, waited(ctx, "no answer to a Publish", s.faultOf())
		}
	}
}

func (s *Subscriber) startPublish(ctx context.Context, m ClientMessage) (*publishing, error) {
	for {
		s.mu.Lock()
		if s.closing || s.err != nil {
			defer s.mu.Unlock()
			return nil, s.endError()
		}
		if l := s.link; l != nil && len(s.pubs) < s.publishWindow() {
			p := &publishing{done: make(chan answer, 1)}
			id := s.nextID()
			s.pubs[id] = p
			s.changed.Broadcast() // the reader reads on for the answer
			s.mu.Unlock()
			err := l.Send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{
				Id: id, Topic: m.Topic, Payload: m.Payload, Headers: m.Headers, DedupeKey: m.DedupeKey,
			})
			var bad *link.Unsendable
			if errors.As(err, &bad) {
				s.mu.Lock()
				s.answered(id, Result{}, unsent(bad))
				s.mu.Unlock()
			}
			return p, nil
		}
		change := s.pubChange
		s.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			return nil, waited(ctx, "not published", s.faultOf())
		}
	}
}

func (s *Subscriber) publishWindow() int {
	if w := s.link.Welcome().GetPublishWindow(); w > 0 {
		return int(w)
	}
	return 16
}

// publishingChanged wakes everybody who waits for a connection or for room. Called with s.mu held,
// as are the next ones.
func (s *Subscriber) publishingChanged() {
	close(s.pubChange)
	s.pubChange = make(chan struct{})
}

func (s *Subscriber) publishingConnected() {
	s.pubs = map[uint32]*publishing{}
	s.publishingChanged()
}

// publishingBroken answers what the connection took with it.
func (s *Subscriber) publishingBroken() {
	for id := range s.pubs {
		s.answered(id, Result{}, &Error{
			Code: CodeUnavailable, Message: "the connection broke before the answer", Unknown: true,
		})
	}
	s.publishingChanged()
}

func (s *Subscriber) answered(id uint32, r Result, err *Error) {
	p := s.pubs[id]
	if p == nil {
		return
	}
	full := s.link != nil && len(s.pubs) >= s.publishWindow()
	delete(s.pubs, id)
	p.done <- answer{r, err}
	if full {
		s.publishingChanged()
	}
}

func (r *reader) published(body []byte) error {
	var m wirev1.Published
	if proto.Unmarshal(body, &m) != nil {
		return errBadMessage
	}
	r.s.mu.Lock()
	defer r.s.unlock()
	r.s.answered(m.GetId(), Result{ID: idOf(m.GetMessageId()), Seq: m.GetSeq(), Epoch: m.GetEpoch(), Duplicate: m.GetDuplicate()}, nil)
	return nil
}
