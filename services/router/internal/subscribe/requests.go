package subscribe

import (
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const (
	// maxEntries of one Ack: no window is larger.
	maxEntries = 65_536
	// maxKept is how many bytes of Subscribes a stream with move may have, to be asked for again.
	maxKept = 1 << 20
)

// kept is a subscription that another edge has to be asked for.
type kept struct {
	request *wirev1.Subscribe
	size    int
	leaving bool // Unsubscribe was sent, and is not answered
}

// take hands requests to the edge until the client sends no more. It reads nothing while there is
// no edge, or while too much waits for it.
func (s *stream) take() error {
	for {
		req, err := s.rpc.Recv()
		if err != nil {
			return err
		}
		if err := s.request(req); err != nil {
			return err
		}
	}
}

func (s *stream) request(req *pushmeshv1.SubscribeRequest) error {
	if m := req.GetSubscribe(); m.GetId() != 0 {
		if why := s.forbidden(m.GetFilter()); why != nil {
			return s.refuse(m.GetId(), why)
		}
	}
	for {
		s.mu.Lock()
		l, linked := s.link, s.linked
		if l != nil && !l.up.full() {
			defer s.mu.Unlock()
			return s.hand(l, req)
		}
		s.mu.Unlock()
		if l == nil {
			select {
			case <-linked:
			case <-s.rpc.Context().Done():
				return s.rpc.Context().Err()
			}
			continue
		}
		select {
		case <-l.up.room:
		case <-l.up.done:
		case <-s.rpc.Context().Done():
			return s.rpc.Context().Err()
		}
	}
}

// hand hands one request to the edge. s.mu is held, so that it is to this one and no other.
func (s *stream) hand(l *link, req *pushmeshv1.SubscribeRequest) error {
	if req.GetAck() == nil && proto.Size(req) > int(l.welcome.GetMaxFrame()) {
		return code.New(wirev1.Code_CODE_FRAME_TOO_LARGE, "a request is longer than welcome.max_frame")
	}
	switch r := req.GetRequest().(type) {
	case *pushmeshv1.SubscribeRequest_Subscribe:
		return s.subscribe(l, r.Subscribe)
	case *pushmeshv1.SubscribeRequest_Unsubscribe:
		if r.Unsubscribe.GetId() == 0 {
			return invalid("ids start at 1")
		}
		if k := s.kept[r.Unsubscribe.GetId()]; k != nil {
			k.leaving = true
		}
		return l.up.frame(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, r.Unsubscribe)
	case *pushmeshv1.SubscribeRequest_Ack:
		if n := len(r.Ack.GetEntries()); n > maxEntries {
			return invalid("an ack has %d entries, at most %d", n, maxEntries)
		}
		s.service.metrics.acks.Add(float64(len(r.Ack.GetEntries())))
		if now, err := s.about(l, req, len(r.Ack.GetEntries())); !now {
			return err
		}
		l.up.ack(r.Ack.GetEntries())
		return nil
	case *pushmeshv1.SubscribeRequest_Nack:
		if now, err := s.about(l, req, 1); !now {
			return err
		}
		return l.up.frame(wirev1.FrameType_FRAME_TYPE_NACK, r.Nack)
	case *pushmeshv1.SubscribeRequest_Ping:
		return l.up.frame(wirev1.FrameType_FRAME_TYPE_PING, r.Ping)
	case *pushmeshv1.SubscribeRequest_Hello:
		return invalid("hello came a second time")
	}
	return invalid("a request is empty, or of a kind that this router does not know")
}

// about reports whether n ACKs or a NACK are about the present connection. Handed to another than
// the one they are about, "all up to" could cover what was never handled: a Nack is known to the
// edge that it was sent to alone.
func (s *stream) about(l *link, req *pushmeshv1.SubscribeRequest, n int) (bool, error) {
	switch c := req.GetConnection(); {
	case c == 0 && s.move:
		return false, invalid("with move, ack and nack must set connection to welcome.connection_id")
	case c != 0 && c != l.welcome.GetConnectionId():
		s.service.metrics.stale.Add(float64(n))
		return false, nil
	}
	return true, nil
}

func (s *stream) subscribe(l *link, m *wirev1.Subscribe) error {
	if m.GetId() == 0 {
		return invalid("ids start at 1")
	}
	if s.move {
		if err := s.keep(m); err != nil {
			return err
		}
	}
	return l.up.frame(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, m)
}

func (s *stream) keep(m *wirev1.Subscribe) error {
	switch {
	case m.GetStart() != wirev1.Start_START_SESSION && m.GetGroup() == "":
		return invalid("with move, a subscription must start from SESSION or be of a group")
	case s.kept[m.GetId()] != nil:
		// an edge's refusal of this one could not be told from one of the other
		return invalid("the id %d is in use", m.GetId())
	}
	k := &kept{request: m, size: proto.Size(m)}
	if s.keeping += k.size; s.keeping > maxKept {
		return code.New(wirev1.Code_CODE_TOO_MANY_SUBSCRIPTIONS, "with move, the subscriptions of a stream must have at most 1 MiB together")
	}
	s.kept[m.GetId()] = k
	return nil
}

// again asks a new edge for what the one before was asked for. s.mu is held.
func (s *stream) again(l *link) error {
	for id, k := range s.kept {
		if err := l.up.frame(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, k.request); err != nil {
			return err
		}
		if k.leaving {
			if err := l.up.frame(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: id}); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget notes that a subscription has ended, or was refused.
func (s *stream) forget(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.kept[id]; k != nil {
		s.keeping -= k.size
		delete(s.kept, id)
	}
}
