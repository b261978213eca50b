package delivery

import (
	"bytes"
	"slices"
	"strings"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// publish hands a client's message on. One with id 0 is never answered; a refusal of it is counted
// alone.
func (h *Hub) publish(c *conn, m *wirev1.Publish) {
	if why := h.rules.Publish(c.asking(m.GetId()), m); why != nil {
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
		more := h.conns.more(c)
		more.pubs = append(more.pubs, m.GetId())
	}
	h.mesh.Publish(h.handle(c), m.GetId(), &meshv1.ClientPublish_Item{
		Topic: m.GetTopic(), Payload: bytes.Clone(m.GetPayload()), Headers: m.GetHeaders(), DedupeKey: m.GetDedupeKey(), ClientId: strings.Clone(c.clientID),
	})
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
	more := h.conns.more(c)
	if more.pubs = slices.Delete(more.pubs, i, i+1); len(more.pubs) == 0 {
		more.pubs = nil
		h.conns.less(c)
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
