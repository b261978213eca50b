package delivery

import (
	"bytes"
	"slices"
	"strings"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// publish hands a client's message on. One with id 0 is never answered; a refusal of it is counted
// alone.
func (h *Hub) publish(c *conn, m *wirev1.Publish) {
	if why := h.checkPublish(c, m); why != nil {
		if m.GetId() == 0 {
			h.stats.Refused.add(why.Code, 1)
			return
		}
		h.refuse(c, m.GetId(), why)
		return
	}
	if m.GetId() == 0 {
		c.silent++
	} else {
		more := h.more(c)
		more.pubs = append(more.pubs, m.GetId())
	}
	h.mesh.Publish(h.handle(c), m.GetId(), &meshv1.ClientPublish_Item{
		Topic: m.GetTopic(), Payload: bytes.Clone(m.GetPayload()), Headers: m.GetHeaders(), DedupeKey: m.GetDedupeKey(), ClientId: strings.Clone(c.clientID),
	})
}

func (h *Hub) checkPublish(c *conn, m *wirev1.Publish) *code.Error {
	if m.GetId() != 0 && c.inUse(m.GetId()) {
		return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "the id is in use")
	}
	if len(c.pubs)+int(c.silent) >= h.lim.PublishWindow {
		return code.Retry(wirev1.Code_CODE_RATE_LIMITED, Tick, "more publishes are unanswered than publish_window allows")
	}
	if c.draining {
		return code.New(wirev1.Code_CODE_DRAINING, "the edge is stopping")
	}
	if why := checkTopic(m.GetTopic()); why != nil {
		return why
	}
	p := h.cfg.PolicyFor(m.GetTopic())
	switch {
	case p.Refusal != nil:
		return p.Refusal
	case !p.ClientPublish:
		return code.New(wirev1.Code_CODE_FORBIDDEN, "clients may not publish to this topic")
	case m.GetDedupeKey() != "" && !p.Durable:
		return code.New(wirev1.Code_CODE_UNSUPPORTED, "dedupe_key: the topic is ephemeral, so that nothing remembers keys: leave it out")
	case p.MaxPayload > 0 && len(m.GetPayload()) > p.MaxPayload:
		return code.New(wirev1.Code_CODE_PAYLOAD_TOO_LARGE, "the payload is longer than the namespace allows")
	}
	return nil
}

func (h *Hub) published(c *conn, e exchange.Published) {
	if e.ID == 0 {
		c.silent -= min(c.silent, 1)
		return
	}
	i := slices.Index(c.pubs, e.ID)
	if i < 0 {
		h.stats.StaleEvents++
		return
	}
	more := h.more(c)
	if more.pubs = slices.Delete(more.pubs, i, i+1); len(more.pubs) == 0 {
		more.pubs = nil
		h.less(c)
	}
	r := e.Result
	if r.GetCode() != wirev1.Code_CODE_OK {
		h.stats.Refused.add(r.GetCode(), 1)
		h.control(c, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{
			Code: r.GetCode(), Message: r.GetError(), Ref: e.ID, RetryAfterMs: r.GetRetryAfterMs(),
		})
		return
	}
	h.control(c, wirev1.FrameType_FRAME_TYPE_PUBLISHED, &wirev1.Published{
		Id: e.ID, Seq: r.GetSeq(), MessageId: r.GetMessageId(), Duplicate: r.GetDuplicate(), Epoch: r.GetEpoch(),
	})
}
